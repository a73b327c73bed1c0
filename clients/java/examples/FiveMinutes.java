import java.util.List;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.UnifiedJedis;
import rheostat.client.Client;
import rheostat.client.Dial;
import rheostat.client.Counter;
import rheostat.client.Many;
import rheostat.client.NewCounter;
import rheostat.client.Read;
import rheostat.client.RheostatException;
import rheostat.client.Session;
import rheostat.client.Version;

/** Against `cargo run --release -- demo`. */
class FiveMinutes {
  static JedisPooled region(int number) {
    String port = System.getenv().getOrDefault("RHEOSTAT_PORT", "7400");
    return new JedisPooled(new HostAndPort("127.0.0.1", Integer.parseInt(port) + 10 * number),
        DefaultJedisClientConfig.builder().password(System.getenv("RHEOSTAT_PASSWORD")).socketTimeoutMillis(10_000).build());
  }

  public static void main(String[] args) {
    // One pool for each region, the nearest first: two clients of two applications.
    Client inUsEast = new Client(region(0), region(1));
    Client inEu = new Client(region(2), region(1));

    // A session is what one user has seen and written.
    Session session = inUsEast.session("default");
    Version version = session.put("tour:photo", "a sunset");
    System.out.println("wrote " + version);
    session.put("tour:comment", "what a sunset!");

    // In another process, in another region: at least what she has seen. There it waits until that has arrived.
    Session elsewhere = inEu.resume("default", session.token());
    Many both = elsewhere.readTransaction(List.of("tour:comment", "tour:photo"));
    System.out.println("eu, one snapshot: " + both.texts() + " at level " + both.quality().level());

    // How much consistency, for one call.
    Read quick = elsewhere.withDial(Dial.NONE.withLevel("eventual")).get("tour:photo");
    System.out.println("eventual: " + quick.text() + ", at most " + quick.staleness() + " stale");
    Read best = elsewhere.withDial(Dial.NONE.withServiceLevel("strong 200ms; causal 50ms; eventual")).get("tour:photo");
    System.out.println("the best there was time for: entry " + best.achieved().entry());

    // Your code keeps its Redis client: these commands belong to the session.
    UnifiedJedis lent = session.redis();
    lent.set("tour:usual", "as ever");
    System.out.println("Jedis: " + lent.mget("tour:usual", "tour:photo"));

    // A counter that never leaves its bounds, in any region.
    Counter seats = session.counter("tour:seats:" + version);
    seats.create(NewCounter.atLeast(0, 3));
    int sold = 0;
    try {
      while (true) {
        seats.global().add(-1);
        sold++;
      }
    } catch (RheostatException.NoRights noneLeft) {
      System.out.println("sold " + sold + " of 3: " + noneLeft.getMessage());
    }
  }
}
