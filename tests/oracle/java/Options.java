package lakelog.oracle;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** A command line: {@code --name value} is for the program, {@code name=value} is for the store. */
final class Options {
    private final Map<String, String> program = new HashMap<>();
    private final Properties store = new Properties();

    Options(String[] args) {
        for (int i = 0; i < args.length; i++) {
            if (args[i].startsWith("--")) {
                program.put(args[i].substring(2), args[++i]);
            } else {
                int equals = args[i].indexOf('=');
                store.setProperty(args[i].substring(0, equals), args[i].substring(equals + 1));
            }
        }
    }

    /** The properties of MessageStoreConfig that differ from the defaults. */
    Properties store() {
        return store;
    }

    boolean has(String name) {
        return program.containsKey(name);
    }

    String required(String name) {
        String value = program.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return program.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(text(name, Integer.toString(otherwise)));
    }
}
