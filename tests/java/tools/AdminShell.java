import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin commands in one JVM: a line of standard input is one command, its words separated by
 * U+001F. What it prints, errors included, is followed by a line with U+0004 alone.
 */
public final class AdminShell {
    public static void main(String[] args) throws Exception {
        System.setErr(System.out);
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                MQAdminStartup.main0(line.split("\u001f"), null);
            } catch (Throwable failed) {
                failed.printStackTrace();
            }
            System.out.println("\n\u0004");
            System.out.flush();
        }
        System.exit(0);
    }
}
