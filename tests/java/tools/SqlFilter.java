import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Says of SQL92 filters what a broker makes of them. A line of standard input is a filter and the
 * properties of a message, as hex of UTF-8; the answer is "true", "false" or "refused".
 */
public final class SqlFilter {
    public static void main(String[] args) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            answers.append(answer(text(parts[0]), text(parts[1]))).append('\n');
        }
        System.out.print(answers);
    }

    private static String answer(String filter, String properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(filter);
        } catch (Exception refused) {
            return "refused";
        }
        Map<String, String> message = MessageDecoder.string2messageProperties(properties);
        try {
            return Boolean.toString(Boolean.TRUE.equals(expression.evaluate(new Context(message))));
        } catch (Throwable failed) {
            return "false";
        }
    }

    private static String text(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static final class Context implements EvaluationContext {
        private final Map<String, String> properties;

        Context(Map<String, String> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }
}
