import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Says what a broker's or a client's JSON reader makes of bodies. A line of standard input is the name of a class and
 * a body as hex; the answer is what was read, written again, or "refused" and the exception.
 */
public final class BodyReader {
    public static void main(String[] args) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            answers.append(answer(Class.forName(parts[0]), bytes(parts[1]))).append('\n');
        }
        System.out.write(answers.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static String answer(Class<?> type, byte[] body) {
        try {
            Object read = RemotingSerializable.decode(body, type);
            return JSON.toJSONString(read, SerializerFeature.MapSortField, SerializerFeature.WriteMapNullValue,
                SerializerFeature.DisableCircularReferenceDetect);
        } catch (Throwable refused) {
            return "refused " + refused.getClass().getSimpleName() + ": "
                + String.valueOf(refused.getMessage()).replace('\n', ' ').replace('\r', ' ');
        }
    }

    private static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16);
        }
        return bytes;
    }
}
