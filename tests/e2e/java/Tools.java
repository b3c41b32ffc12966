import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.internals.Exit;

/** Runs the main methods that standard input names, a line each: the class and its arguments between tabs. */
public class Tools {
    /** The status with which a tool asked for the end of the process: the first, as some catch what is thrown then. */
    private static Integer ended;

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            ended = ended == null ? Integer.valueOf(status) : ended;
            throw new Error("ended");
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            int status = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            System.out.println("=== ended with status " + status);
        }
    }

    private static int run(String name, String[] arguments) throws Exception {
        ended = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException fault) {
            if (ended == null) {
                throw fault;
            }
        }
        return ended == null ? 0 : ended;
    }
}
