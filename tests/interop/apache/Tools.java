import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Apache Kafka's command-line tools, one after the other in one Java machine: most of what a tool takes is the
 * start of the machine. A line on standard input is a command: the main class, what it finds on its standard
 * input, and its arguments, each in base64 with a dot in front, between blanks. A line on standard output is
 * the exit code and, in base64, what the tool printed.
 */
public final class Tools {
    private static final class Exited extends Error {
        final int code;

        Exited(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    /** The streams of the system as the tools see them; whoever keeps one keeps this. */
    private static final class Switch extends OutputStream {
        volatile ByteArrayOutputStream target;

        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) {
            target.write(bytes, offset, length);
        }
    }

    private static final Switch output = new Switch();
    private static int code;
    private static final List<Runnable> hooks = new ArrayList<>();

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        output.target = new ByteArrayOutputStream();
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(output, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> exit(status, message));
        Exit.setHaltProcedure((status, message) -> exit(status, message));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = Arrays.stream(line.split(" ")).map(Tools::decoded).toArray(String[]::new);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            output.target = printed;
            System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
            run(words[0], Arrays.copyOfRange(words, 2, words.length));
            output.target = printed;
            for (Runnable hook : hooks) {
                hook.run();
            }
            hooks.clear();
            answers.println(code + " ." + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
    }

    private static void run(String name, String[] arguments) {
        code = -1;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Exited)) {
                code = 1;
                failure.getCause().printStackTrace();
            }
        } catch (ReflectiveOperationException failure) {
            code = 1;
            failure.printStackTrace();
        }
        code = Math.max(code, 0);
    }

    /** The first exit counts: a tool may catch what ends it, complain of it, and exit once more. */
    private static void exit(int status, String message) {
        if (code < 0) {
            code = status;
            if (message != null) {
                System.err.println(message);
            }
            output.target = new ByteArrayOutputStream();
        }
        throw new Exited(status);
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }
}
