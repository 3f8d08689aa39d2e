import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.rocketmq.acl.plain.PlainAccessResource;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategy;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory;

/** Reads lines "WHITE|HOST"; writes for each whether the host is white, or that there is an error. */
public class WhiteAddresses {
    public static void main(String[] args) throws Exception {
        RemoteAddressStrategyFactory factory = new RemoteAddressStrategyFactory();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            int at = line.indexOf('|');
            String answer;
            try {
                RemoteAddressStrategy strategy = factory.getRemoteAddressStrategy(line.substring(0, at));
                PlainAccessResource peer = new PlainAccessResource();
                peer.setWhiteRemoteAddress(line.substring(at + 1));
                answer = strategy.match(peer) ? "yes" : "no";
            } catch (Throwable error) {
                answer = "error";
            }
            System.out.println(answer);
        }
    }
}
