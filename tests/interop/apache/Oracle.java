import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Asks Apache Kafka's own message classes: one question per line in, one answer per line out.
 *
 * <pre>
 * NAME VERSION HEX     ok HEX JSON         read by Apache's class, then written by it; and its fields
 * describe NAME        ok LOWEST HIGHEST   the versions of a schema
 * names                ok NAME ...         every schema that has a class
 * errors               ok CODE:NAME:RETRIABLE ...
 * apis                 ok KEY:NAME:LOWEST:HIGHEST:HIGHEST_STABLE:LISTENER,...:FORWARDABLE ...
 * headers KEY VERSION  ok REQUEST RESPONSE the header versions
 * </pre>
 *
 * A question without a good answer gets "error REASON". Names are schema names: FetchRequest, RequestHeader,
 * QuorumStateData. The same source compiles with every release that we ask, so it names only classes which
 * they all have; the message classes are found by reflection.
 */
public final class Oracle {
    private static final HexFormat HEX = HexFormat.of();

    /** The file of a generated class: the whole name, and the last part of it. */
    private static final Pattern GENERATED =
        Pattern.compile("(.*/(?:common/message|common/metadata|generated)/(\\w+))\\.class");

    /** A definition names itself before it names its fields. Its file may be called something else. */
    private static final Pattern NAME = Pattern.compile("\"name\"\\s*:\\s*\"(\\w+)\"");

    /** Schema name to class name, for every schema on the class path that has a class. */
    private final SortedMap<String, String> classNames;
    private final Map<String, Schema> schemas = new HashMap<>();

    private record Schema(Class<? extends Message> type, short lowest, short highest) { }

    private Oracle(SortedMap<String, String> classNames) {
        this.classNames = classNames;
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream answers =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);  // whatever a library prints must not look like an answer
        BufferedReader questions =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Oracle oracle = new Oracle(findClasses());
        for (String question = questions.readLine(); question != null; question = questions.readLine()) {
            answers.print(oracle.answer(question) + "\n");
            answers.flush();
        }
    }

    private String answer(String question) {
        try {
            return "ok " + dispatch(question.strip().split(" +"));
        } catch (Throwable failure) {  // also an OutOfMemoryError: a length field of garbage can ask for it
            String message = failure.getMessage() == null ? "" : ": " + failure.getMessage();
            return "error " + failure.getClass().getSimpleName() + message.replaceAll("\\s+", " ");
        }
    }

    private String dispatch(String[] words) throws ReflectiveOperationException {
        String form = words[0] + " " + words.length;
        switch (form) {
            case "describe 2":
                Schema schema = schema(words[1]);
                return schema.lowest + " " + schema.highest;
            case "names 1":
                return String.join(" ", classNames.keySet());
            case "errors 1":
                return Arrays.stream(Errors.values()).map(Oracle::describe).collect(Collectors.joining(" "));
            case "apis 1":
                return Arrays.stream(ApiKeys.values()).map(Oracle::describe).collect(Collectors.joining(" "));
            case "headers 3":
                ApiKeys api = ApiKeys.forId(Integer.parseInt(words[1]));
                short version = Short.parseShort(words[2]);
                return api.requestHeaderVersion(version) + " " + api.responseHeaderVersion(version);
            default:
                if (words.length != 2 && words.length != 3) {
                    throw new IllegalArgumentException("not a question");
                }
                byte[] message = HEX.parseHex(words.length == 3 ? words[2] : "");  // some messages are empty
                return roundTrip(schema(words[0]), Short.parseShort(words[1]), message);
        }
    }

    private static String roundTrip(Schema schema, short version, byte[] bytes)
            throws ReflectiveOperationException {
        if (version < schema.lowest || version > schema.highest) {
            throw new IllegalArgumentException(
                "version " + version + " is not one of " + schema.lowest + " to " + schema.highest);
        }
        Message message = schema.type.getConstructor().newInstance();
        ByteBufferAccessor input = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
        message.read(input, version);
        if (input.remaining() > 0) {
            throw new IllegalArgumentException(input.remaining() + " bytes are left over");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(output), cache, version);
        if (output.hasRemaining()) {
            throw new IllegalStateException("wrote " + output.remaining() + " bytes less than its size");
        }
        return HEX.formatHex(output.array()) + " " + fields(schema, message, version);
    }

    /** Beside every generated class stands one that shows a message as JSON. */
    private static String fields(Schema schema, Message message, short version)
            throws ReflectiveOperationException {
        Class<?> converter = Class.forName(schema.type.getName() + "JsonConverter");
        return converter.getMethod("write", schema.type, short.class).invoke(null, message, version).toString();
    }

    private Schema schema(String name) throws ReflectiveOperationException {
        Schema known = schemas.get(name);
        if (known != null) {
            return known;
        }
        String className = classNames.get(name);
        if (className == null) {
            throw new IllegalArgumentException("no schema is called " + name);
        }
        Class<? extends Message> type = Class.forName(className).asSubclass(Message.class);
        short lowest = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
        short highest = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
        Schema schema = new Schema(type, lowest, highest);
        schemas.put(name, schema);
        return schema;
    }

    private static String describe(Errors error) {
        return error.code() + ":" + error.name() + ":" + (error.exception() instanceof RetriableException);
    }

    private static String describe(ApiKeys api) {
        String listeners = Arrays.stream(ListenerType.values())
            .filter(api::inScope).map(listener -> listener.name().toLowerCase())
            .collect(Collectors.joining(","));
        return String.join(":", String.valueOf(api.id), api.name,
            String.valueOf(api.oldestVersion()), String.valueOf(api.latestVersion()),
            String.valueOf(api.latestVersion(false)), listeners, String.valueOf(api.forwardable));
    }

    /** Every Kafka jar carries the JSON schemas that its message classes were generated from. */
    private static SortedMap<String, String> findClasses() throws IOException {
        SortedMap<String, String> found = new TreeMap<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (new File(path).getName().matches("kafka-.*\\.jar")) {
                try (JarFile jar = new JarFile(path)) {
                    findClasses(jar, found);
                }
            }
        }
        return found;
    }

    private static void findClasses(JarFile jar, SortedMap<String, String> found) throws IOException {
        Map<String, String> generated = new HashMap<>();
        List<JarEntry> definitions = new ArrayList<>();
        for (JarEntry entry : Collections.list(jar.entries())) {
            Matcher type = GENERATED.matcher(entry.getName());
            if (type.matches()) {
                generated.put(type.group(2), type.group(1).replace('/', '.'));
            } else if (entry.getName().endsWith(".json")) {
                definitions.add(entry);
            }
        }
        for (JarEntry definition : definitions) {
            byte[] text = jar.getInputStream(definition).readAllBytes();
            String name = nameIn(new String(text, StandardCharsets.UTF_8));
            // A request, a response and a header have "Data" after the schema's name; the others do not.
            String className = generated.getOrDefault(name + "Data", generated.get(name));
            if (className == null) {
                continue;  // a retired schema: its definition says that no version is valid
            }
            String other = found.put(name, className);
            if (other != null) {
                throw new IllegalStateException(name + " is both " + other + " and " + className);
            }
        }
    }

    private static String nameIn(String definition) {
        Matcher name = NAME.matcher(definition);
        return name.find() ? name.group(1) : "";
    }
}
