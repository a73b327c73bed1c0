package rheostat.ycsb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SettingsTest {
  static Properties properties(String... pairs) {
    Properties properties = new Properties();
    for (int i = 0; i < pairs.length; i += 2) {
      properties.setProperty(pairs[i], pairs[i + 1]);
    }
    return properties;
  }

  @Test
  void defaults() throws SettingException {
    Settings settings = Settings.of(new Properties());
    assertEquals(List.of(new Settings.Address("127.0.0.1", 7400)), settings.addresses());
    assertEquals("0", settings.keyspace());
    assertEquals(Settings.LayoutKind.KEYS, settings.layout());
    assertEquals(Settings.SessionSpan.THREAD, settings.session());
    assertEquals(10, settings.fields().size());
    assertEquals("field9", settings.fields().get(9));
  }

  @Test
  void hostsAreSeparatedByCommas() throws SettingException {
    Settings settings = Settings.of(properties("rheostat.hosts", "a:1, [::1]:65535", "rheostat.transport", "grpc"));
    assertEquals(List.of(new Settings.Address("a", 1), new Settings.Address("[::1]", 65535)), settings.addresses());
  }

  @Test
  void levelsAreSpelledAsTheServerDoes() throws SettingException {
    assertEquals("strong", Settings.of(properties("rheostat.level", "strong")).levelWord());
    Settings some = Settings.of(properties("rheostat.level", "read-your-writes+monotonic-reads"));
    assertEquals(Settings.Level.SESSION, some.level());
    assertEquals("read-your-writes+monotonic-reads", some.levelWord());
  }

  @ParameterizedTest
  @CsvSource(delimiter = '|', textBlock = """
      rheostat.transport | http           | allowed are resp, grpc
      rheostat.session   | some           | allowed are thread, none
      rheostat.level     | linearizable   | allowed are default, eventual, causal, session, local, strong, or some of monotonic-reads
      rheostat.level     | causal+strong  | with + between them
      rheostat.strategy  | fast           | allowed are auto, coordinated, predicted
      rheostat.fields    | hash           | allowed are keys, value
      rheostat.scan      | yes            | allowed are refuse, consecutive
      rheostat.scan      | consecutive    | insertorder=ordered
      rheostat.server    | mysql          | allowed are rheostat, redis
      rheostat.hosts     | localhost      | allowed are host:port
      rheostat.hosts     | a:1,           | allowed are host:port
      rheostat.hosts     | a:70000        | allowed are host:port
      rheostat.keyspace  | ' '            | keyspace's name or number
      rheostat.timeout.ms | 0             | from 1 to 600000
      fieldcount         | many           | from 1 to 10000
      """)
  void wrongOnesSayWhatIsAllowed(String name, String value, String said) {
    String message = assertThrows(SettingException.class, () -> Settings.of(properties(name, value))).getMessage();
    assertTrue(message.contains(said), message);
  }

  @ParameterizedTest
  @CsvSource({"rheostat.transport,grpc", "rheostat.session,none", "rheostat.level,causal", "rheostat.strategy,predicted"})
  void redisIsAskedNothingThatItDoesNotKnow(String name, String value) {
    String message = assertThrows(SettingException.class, () -> Settings.of(properties("rheostat.server", "redis", name, value))).getMessage();
    assertTrue(message.contains(name), message);
  }
}
