import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Set;

/** Prints every key that a broker reads from broker.conf: name, Java type, default of its version. */
public final class ConfigKeys {
    private static final String[] CLASSES = {
        "org.apache.rocketmq.common.BrokerConfig",
        "org.apache.rocketmq.remoting.netty.NettyServerConfig",
        "org.apache.rocketmq.remoting.netty.NettyClientConfig",
        "org.apache.rocketmq.store.config.MessageStoreConfig",
        "org.apache.rocketmq.auth.config.AuthConfig",
        "org.apache.rocketmq.tieredstore.common.TieredMessageStoreConfig",
        "org.apache.rocketmq.tieredstore.MessageStoreConfig",
    };
    /** What MixAll.properties2Object sets; of enums the setter of their text counts. */
    private static final Set<String> TYPES =
        Set.of("int", "long", "boolean", "double", "float", "String");

    public static void main(String[] args) throws ReflectiveOperationException {
        for (String name : CLASSES) {
            Object config;
            try {
                config = Class.forName(name).getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException ofAnotherVersion) {
                continue;
            }
            for (Method method : config.getClass().getMethods()) {
                boolean setter = method.getName().startsWith("set") && method.getParameterCount() == 1;
                setter = setter && TYPES.contains(type(method));
                if (setter && !Modifier.isStatic(method.getModifiers())) {
                    String word = method.getName().substring(3);
                    String key = Character.toLowerCase(word.charAt(0)) + word.substring(1);
                    System.out.println(key + "\t" + type(method) + "\t" + value(config, key));
                }
            }
        }
    }

    private static String type(Method method) {
        return method.getParameterTypes()[0].getSimpleName();
    }

    private static String value(Object config, String key) {
        try {
            Field field = config.getClass().getDeclaredField(key);
            field.setAccessible(true);
            return String.valueOf(field.get(config));
        } catch (ReflectiveOperationException none) {
            return "";
        }
    }
}
