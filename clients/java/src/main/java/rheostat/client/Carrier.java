package rheostat.client;

/** What a filter of any web framework needs: the session of a request, checked. */
public final class Carrier {
  /** The longest token that is taken from a web request, in bytes. */
  public static final int LONGEST_TOKEN = 16384;

  private final Client client;
  private final String keyspace;

  /** For sessions in {@code keyspace}; null is that of the pools. */
  public Carrier(Client client, String keyspace) {
    this.client = client;
    this.keyspace = keyspace;
  }

  /**
   * The session of a request whose header {@link Session#HEADER} is {@code token}; a new one where it is null. Make it the current one ({@link Session#asCurrent}) while
   * the request is served, and put {@link Session#headers} into the answer.
   *
   * @throws RheostatException.Token if the servers refuse the token: answer with 400
   */
  public Session begin(String token) {
    Session session = client.resume(keyspace, token == null ? "" : token);
    if (!session.token().isEmpty()) {
      if (token.length() > LONGEST_TOKEN) {
        throw new RheostatException.Token("longer than " + LONGEST_TOKEN + " bytes", null);
      }
      try {
        session.check();
      } catch (RheostatException.Token refused) {
        throw refused;
      } catch (RheostatException other) {
        // Whoever uses the session is told the same.
      }
    }
    return session;
  }
}
