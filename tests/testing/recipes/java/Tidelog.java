import java.io.File;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Scanner;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A broker for the tests of a class. */
public final class Tidelog implements BeforeAllCallback, AfterAllCallback {
    private Path folder;
    private Process process;

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        folder = Files.createTempDirectory("tidelog");
        Path log = folder.resolve("log");
        process = new ProcessBuilder(
                "tidelog", "serve", "--port", "0", "--data-dir", folder + "/data", "--test-control", "--stop-at-eof")
            .redirectError(log.toFile())
            .start();
        if (process.inputReader().readLine() == null) { // the first line comes when it is ready
            throw new IOException(Files.readString(log));
        }
    }

    /** Has the broker do something, in JSON in one line, and returns its answer. */
    public String ask(String command) throws IOException {
        var socket = UnixDomainSocketAddress.of(folder + "/data/.control");
        try (var channel = SocketChannel.open(socket); var answers = new Scanner(Channels.newInputStream(channel))) {
            Channels.newOutputStream(channel).write((command + "\n").getBytes());
            String answer = answers.nextLine();
            if (!answer.contains("\"ok\": true")) throw new IllegalArgumentException(answer);
            return answer;
        }
    }

    public String bootstrap() throws IOException {
        var found = Pattern.compile("\"bootstrap\": \"(.+?)\"").matcher(ask("{\"do\": \"hello\"}"));
        found.find();
        return found.group(1);
    }

    @Override
    public void afterAll(ExtensionContext context) throws Exception {
        process.getOutputStream().close(); // which stops it, as the end of this process would
        process.waitFor();
        try (var files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }
}
