import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.RPCHook;

/** What the programs share: "-name value" arguments and lines on standard output. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] args) {
        for (int at = 0; at + 1 < args.length; at += 2) {
            values.put(args[at].substring(1), args[at + 1]);
        }
    }

    String text(String name, String fallback) {
        return values.getOrDefault(name, fallback);
    }

    int number(String name, int fallback) {
        return values.containsKey(name) ? Integer.parseInt(values.get(name)) : fallback;
    }

    /** What signs requests by -accessKey and -secretKey, or null; needs Apache's ACL classes. */
    RPCHook signer() throws ReflectiveOperationException {
        if (!values.containsKey("accessKey")) {
            return null;
        }
        Class<?> credentials = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
        Object keys = credentials.getConstructor(String.class, String.class)
            .newInstance(values.get("accessKey"), values.get("secretKey"));
        return (RPCHook) Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook")
            .getConstructor(credentials).newInstance(keys);
    }

    static synchronized void say(String format, Object... parts) {
        System.out.println(String.format(format, parts));
        System.out.flush();
    }

    /** Shuts the JVM down, hooks included, when the test closes our standard input. */
    static void endWithStandardInput() {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException closed) {
                // the same as its end
            }
            System.exit(0);
        });
        watcher.setDaemon(true);
        watcher.start();
    }
}
