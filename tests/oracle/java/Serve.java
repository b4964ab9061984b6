package lakelog.oracle;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Runs a program for each line of standard input: a Java that runs costs no start.
 *
 * <p>The words of a line are separated by tabs: the program and its arguments. A line of the kind
 * {@code end} follows those of the program, with the trace of what was thrown. A store that is to be
 * left as a kill would leave it needs a process of its own.
 */
public final class Serve {
    private Serve() {
    }

    public static void main(String[] args) {
        Exit.with(Serve::serve);
    }

    private static int serve() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonLines out = new JsonLines();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            StringWriter trace = new StringWriter();
            try {
                String[] words = line.split("\t");
                run(words[0], new Options(Arrays.copyOfRange(words, 1, words.length)));
            } catch (Throwable problem) {
                problem.printStackTrace(new PrintWriter(trace));
            }
            out.print(JsonLines.object("kind", "end", "thrown", trace.toString()));
            out.flush();
        }
        return 0;
    }

    private static int run(String program, Options options) throws Exception {
        switch (program) {
            case "Dump":
                return Dump.run(options);
            case "Fill":
                return Fill.run(options);
            case "PutSame":
                return PutSame.run(options);
            default:
                throw new IllegalArgumentException("not served: " + program);
        }
    }
}
