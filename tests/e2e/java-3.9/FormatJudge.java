import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/**
 * What Apache Kafka stores of a produce, and sends for a fetch, in each message format. A question a line on stdin,
 * an answer a line on stdout: {@code OK MAX_TIMESTAMP COUNT HEX}, or {@code ERR CLASS MESSAGE}.
 *
 * <pre>
 * store MAGIC APPEND_TIME(0|1) MAX_DIFFERENCE_MS CODEC(or producer) BASE_OFFSET NOW_MS HEX
 * convert MAGIC OFFSET HEX
 * </pre>
 */
public final class FormatJudge {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] parts = line.split(" ", -1);
            try {
                System.out.println("OK " + (parts[0].equals("store") ? stored(parts) : converted(parts)));
            } catch (Exception error) {
                String message = String.valueOf(error.getMessage()).replace('\n', ' ');
                System.out.println("ERR " + error.getClass().getSimpleName() + " " + message);
            }
        }
    }

    private static String stored(String[] parts) {
        boolean appendTime = parts[2].equals("1");
        long difference = Long.parseLong(parts[3]);
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(Long.parseLong(parts[5]));
        long now = Long.parseLong(parts[6]);
        MemoryRecords records = records(parts[7]);
        // What a log does before it asks its validator.
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            source = batch.compressionType() == CompressionType.NONE ? source : batch.compressionType();
        }
        CompressionType target = parts[4].equals("producer") ? source : CompressionType.forName(parts[4]);
        LogValidator validator = new LogValidator(
                records, new TopicPartition("t", 0), answering(Time.class, now), source,
                Compression.of(target).build(), false, Byte.parseByte(parts[1]),
                appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                difference, difference, 0, AppendOrigin.CLIENT, MetadataVersion.IBP_2_8_IV1);
        LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(
                offset, answering(LogValidator.MetricsRecorder.class, null), BufferSupplier.NO_CACHING);
        long count = offset.value - Long.parseLong(parts[5]);
        return result.maxTimestampMs + " " + count + " " + hex(result.validatedRecords);
    }

    private static String converted(String[] parts) {
        MemoryRecords records = records(parts[3]);
        long offset = Long.parseLong(parts[2]);
        return "0 0 " + hex(records.downConvert(Byte.parseByte(parts[1]), offset, Time.SYSTEM).records());
    }

    private static MemoryRecords records(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(hex)));
    }

    private static String hex(MemoryRecords records) {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }

    /** Every call of every method is answered so. */
    private static <T> T answering(Class<T> type, Object answer) {
        return type.cast(Proxy.newProxyInstance(
                FormatJudge.class.getClassLoader(), new Class<?>[] {type}, (proxy, method, values) -> answer));
    }
}
