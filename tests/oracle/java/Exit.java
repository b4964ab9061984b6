package lakelog.oracle;

import java.util.concurrent.Callable;

/** Ends a program at once: threads of the store that still run do not hold it, nor close anything. */
final class Exit {
    private static final int FAILED = 4;

    private Exit() {
    }

    static void with(Callable<Integer> program) {
        int status = FAILED;
        try {
            status = program.call();
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.err.flush();
        Runtime.getRuntime().halt(status);
    }
}
