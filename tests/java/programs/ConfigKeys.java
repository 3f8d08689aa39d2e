import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;

/** Prints every key that a broker reads from broker.conf: name, Java type, default. */
public final class ConfigKeys {
    private static final String[] CLASSES = {
        "org.apache.rocketmq.common.BrokerConfig",
        "org.apache.rocketmq.remoting.netty.NettyServerConfig",
        "org.apache.rocketmq.remoting.netty.NettyClientConfig",
        "org.apache.rocketmq.store.config.MessageStoreConfig",
    };

    public static void main(String[] args) throws ReflectiveOperationException {
        for (String name : CLASSES) {
            Object config = Class.forName(name).getDeclaredConstructor().newInstance();
            for (Method method : config.getClass().getMethods()) {
                boolean setter = method.getName().startsWith("set") && method.getParameterCount() == 1;
                if (setter && !Modifier.isStatic(method.getModifiers())) {
                    String word = method.getName().substring(3);
                    String key = Character.toLowerCase(word.charAt(0)) + word.substring(1);
                    String type = method.getParameterTypes()[0].getSimpleName();
                    System.out.println(key + "\t" + type + "\t" + value(config, key));
                }
            }
        }
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
