import java.io.FileInputStream;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Prints what BrokerStartup makes of properties files: of each what the text says (P), what the
 * settings are then (S), or why it cannot be read (E); key and value escaped, tabs between them.
 */
public final class ConfReader {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            System.out.println("F\t" + file);
            Properties text = new Properties();
            try (InputStream in = new FileInputStream(file)) {
                text.load(in);
            } catch (IllegalArgumentException error) {
                System.out.println("E\t" + error.getMessage());
                continue;
            }
            for (String key : text.stringPropertyNames()) {
                print("P", key, text.getProperty(key));
            }
            NettyServerConfig server = new NettyServerConfig();
            server.setListenPort(10911);
            for (Object config : new Object[] {new BrokerConfig(), server, new MessageStoreConfig()}) {
                MixAll.properties2Object(text, config);
                for (Field field : config.getClass().getDeclaredFields()) {
                    if (!Modifier.isStatic(field.getModifiers())) {
                        field.setAccessible(true);
                        print("S", field.getName(), String.valueOf(field.get(config)));
                    }
                }
            }
        }
    }

    private static void print(String kind, String key, String value) {
        System.out.println(kind + "\t" + escaped(key) + "\t" + escaped(value));
    }

    private static String escaped(String text) {
        StringBuilder made = new StringBuilder();
        for (char each : text.toCharArray()) {
            boolean plain = each > 0x20 && each < 0x7f && each != '\\';
            made.append(plain ? String.valueOf(each) : String.format("\\u%04x", (int) each));
        }
        return made.toString();
    }
}
