package rheostat.client;

import com.sun.net.httpserver.Filter;
import com.sun.net.httpserver.HttpExchange;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/**
 * Carries a user's session with web requests of the JDK's own web server: in by the header {@link Session#HEADER}, out by the same. {@link Carrier} does it for others.
 *
 * <p>While a request is served, its session is the current one of the thread. What is done after the answer has begun is not in the token that the answer carries.
 */
public final class SessionFilter extends Filter {
  private final Carrier carrier;

  /** For sessions in {@code keyspace}; null is that of the pools. */
  public SessionFilter(Client client, String keyspace) {
    this.carrier = new Carrier(client, keyspace);
  }

  @Override
  public String description() {
    return "carries Rheostat sessions";
  }

  @Override
  public void doFilter(HttpExchange exchange, Chain chain) throws IOException {
    Session session;
    try {
      session = carrier.begin(exchange.getRequestHeaders().getFirst(Session.HEADER));
    } catch (RheostatException.Token refused) {
      byte[] why = (Session.HEADER + ": " + refused.getMessage()).getBytes(StandardCharsets.UTF_8);
      exchange.getResponseHeaders().set("Content-Type", "text/plain; charset=utf-8");
      exchange.sendResponseHeaders(400, why.length);
      exchange.getResponseBody().write(why);
      exchange.close();
      return;
    }
    try (Session.Scope scope = session.asCurrent()) {
      chain.doFilter(new Telling(exchange, session));
    }
  }
}
