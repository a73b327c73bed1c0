package rheostat.client;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** One counter, through a session. */
public final class Counter {
  private final Session session;
  private final String key;
  private final Scope scope;

  /** Where an update gets the rights that it needs. */
  public enum Scope {
    /** In the data center that is asked, and nowhere else. */
    LOCAL,
    /** From other data centers too. */
    GLOBAL
  }

  /** Which rights. */
  public enum Direction {
    /** To decrement. */
    DOWN,
    /** To increment. */
    UP
  }

  Counter(Session session, String key, Scope scope) {
    this.session = session;
    this.key = key;
    this.scope = scope;
  }

  /** Updates fetch the rights that are missing from other data centers. */
  public Counter global() {
    return new Counter(session, key, Scope.GLOBAL);
  }

  /** Updates use the rights of the data center that is asked, and no others. */
  public Counter local() {
    return new Counter(session, key, Scope.LOCAL);
  }

  /** Makes the counter; refused when the key is there. */
  public void create(NewCounter counter) {
    List<Object> words = new ArrayList<>(List.of("RHEO", "COUNTER", "CREATE", key));
    if (counter.lower() != null) {
      words.addAll(List.of("MIN", counter.lower()));
    }
    if (counter.upper() != null) {
      words.addAll(List.of("MAX", counter.upper()));
    }
    words.addAll(List.of("VALUE", counter.initial()));
    if (!counter.placement().isEmpty()) {
      words.add("PLACE");
      words.addAll(counter.placement());
    }
    session.one(true, words.toArray());
  }

  /**
   * Adds {@code delta}, or decrements if it is less than 0; the value afterwards, as known in the data center that was asked.
   *
   * <p>Throws {@link RheostatException.NoRights} if the bounds do not allow it with the rights that the scope can use. Sent again at the same region also where the first
   * try may have been made: the update has a name, under which it is made once.
   */
  public long add(long delta) {
    return session.addAll(Map.of(key, delta), scope).get(0);
  }

  /**
   * Takes {@code amount} from this counter and adds it to the one at {@code to}, of the same partition: both or neither. Both values afterwards, this one's first.
   */
  public List<Long> transfer(String to, long amount) {
    if (amount < 1) {
      throw new RheostatException.Refused(amount + " cannot be transferred; the amount is at least 1");
    }
    // No map: with one key on both sides it would lose what is taken.
    return session.addAll(List.of(key, -amount, to, amount), scope);
  }

  /** The counter as it is known in the data center that is asked. */
  public CounterView look() {
    return Replies.view(session.one(false, "RHEO", "COUNTER", "GET", key).reply());
  }

  /** Moves rights of the data center that is asked to the one called {@code to}. */
  public CounterView moveRights(String to, Direction direction, long amount) {
    return Replies.view(session.one(true, "RHEO", "COUNTER", "MOVE", key, to, amount, direction.name()).reply());
  }

  /** Takes over the rights of a data center that is gone for ever. */
  public CounterView reclaim(String gone) {
    return Replies.view(session.one(true, "RHEO", "COUNTER", "RECLAIM", key, gone).reply());
  }
}
