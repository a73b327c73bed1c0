package rheostat.client;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.CommandObjects;
import redis.clients.jedis.Response;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.executors.CommandExecutor;

/** Jedis' commands, in the session that is current when each is called. */
final class SessionJedis extends UnifiedJedis {
  private final Supplier<Session> which;

  SessionJedis(Client client, Supplier<Session> which) {
    super(new CommandExecutor() {
      @Override
      public <T> T executeCommand(CommandObject<T> command) {
        Session session = which.get();
        return session == null ? client.plain(command) : session.execute(command);
      }

      @Override
      public void close() {
        // The pools are their owner's.
      }
    });
    this.which = which;
  }

  private Session needed(String what) {
    Session session = which.get();
    if (session == null) {
      throw new RheostatException.Refused(what + " without a session: use the pool itself");
    }
    return session;
  }

  @Override
  public AbstractPipeline pipelined() {
    return new Together(needed("a pipeline"));
  }

  @Override
  public AbstractTransaction transaction(boolean doMulti) {
    return new AsOneStep(needed("a transaction"));
  }

  @Override
  public AbstractTransaction multi() {
    return new AsOneStep(needed("a transaction"));
  }

  /** Commands and where their replies go. */
  private static final class Queue {
    private final List<Command> commands = new ArrayList<>();
    private final List<Response<?>> responses = new ArrayList<>();

    <T> Response<T> add(CommandObject<T> object) {
      Response<T> response = new Response<>(object.getBuilder());
      commands.add(Command.of(object.getArguments()));
      responses.add(response);
      return response;
    }

    void run(Session session, boolean transaction) {
      List<Command> now = List.copyOf(commands);
      List<Response<?>> to = List.copyOf(responses);
      commands.clear();
      responses.clear();
      List<Object> replies = session.executeAll(now, transaction);
      for (int i = 0; i < replies.size(); i++) {
        to.get(i).set(replies.get(i));
      }
    }
  }

  private static final class Together extends AbstractPipeline {
    private final Session session;
    private final Queue queue = new Queue();

    Together(Session session) {
      super(new CommandObjects());
      this.session = session;
    }

    @Override
    protected <T> Response<T> appendCommand(CommandObject<T> command) {
      return queue.add(command);
    }

    @Override
    public void sync() {
      queue.run(session, false);
    }

    @Override
    public void close() {
      sync();
    }
  }

  private static final class AsOneStep extends AbstractTransaction {
    private final Session session;
    private Queue queue = new Queue();

    AsOneStep(Session session) {
      super(new CommandObjects());
      this.session = session;
    }

    @Override
    protected <T> Response<T> appendCommand(CommandObject<T> command) {
      return queue.add(command);
    }

    @Override
    public void multi() {
      // It is said when the commands are sent.
    }

    @Override
    public List<Object> exec() {
      List<Response<?>> made = List.copyOf(queue.responses);
      queue.run(session, true);
      List<Object> results = new ArrayList<>(made.size());
      made.forEach(response -> results.add(response.get()));
      return results;
    }

    @Override
    public String discard() {
      queue = new Queue();
      return "OK";
    }

    @Override
    public String watch(String... keys) {
      throw new RheostatException.Refused("WATCH needs a connection of its own; Session.putIf writes under a condition");
    }

    @Override
    public String watch(byte[]... keys) {
      return watch(new String[0]);
    }

    @Override
    public String unwatch() {
      return watch(new String[0]);
    }

    @Override
    public void close() {
      discard();
    }
  }
}
