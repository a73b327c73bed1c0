package rheostat.ycsb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import rheostat.v1.Rheostat.Context;
import rheostat.v1.Rheostat.Dial;
import rheostat.v1.Rheostat.GetRequest;
import rheostat.v1.Rheostat.GetResponse;
import rheostat.v1.Rheostat.Guarantee;
import rheostat.v1.Rheostat.Keyspace;
import rheostat.v1.Rheostat.Level;
import rheostat.v1.Rheostat.PutRequest;
import rheostat.v1.Rheostat.PutResponse;
import rheostat.v1.Rheostat.Read;
import rheostat.v1.Rheostat.Strategy;
import rheostat.v1.Rheostat.TopologyRequest;
import rheostat.v1.Rheostat.TopologyResponse;
import rheostat.v1.StoreGrpc;

class GrpcStoreTest {
  private static final byte[] KEY = "k".getBytes(StandardCharsets.UTF_8);

  /** Answers with tokens that count up, or with the failure that it is told. */
  private static final class Fake extends StoreGrpc.StoreImplBase {
    final List<Context> contexts = Collections.synchronizedList(new ArrayList<>());
    final List<Dial> dials = Collections.synchronizedList(new ArrayList<>());
    volatile Status failure;
    volatile boolean silent;

    @Override
    public void topology(TopologyRequest request, StreamObserver<TopologyResponse> answer) {
      answer.onNext(TopologyResponse.newBuilder().addKeyspaces(Keyspace.newBuilder().setName("orders").setNumber(3)).build());
      answer.onCompleted();
    }

    @Override
    public void get(GetRequest request, StreamObserver<GetResponse> answer) {
      dials.add(request.getDial());
      String token = token(request.getContext());
      if (failure != null) {
        answer.onError(failure.asRuntimeException());
      } else if (!silent) {
        answer.onNext(GetResponse.newBuilder().setRead(Read.newBuilder().setValue(ByteString.EMPTY)).setSession(token).build());
        answer.onCompleted();
      }
    }

    @Override
    public void put(PutRequest request, StreamObserver<PutResponse> answer) {
      answer.onNext(PutResponse.newBuilder().setSession(token(request.getContext())).setApplied(true).build());
      answer.onCompleted();
    }

    private String token(Context context) {
      contexts.add(context);
      return "token-" + contexts.size();
    }
  }

  private final Fake fake = new Fake();
  private Server server;

  @BeforeEach
  void start() throws Exception {
    server = NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0)).addService(fake).build().start();
  }

  @AfterEach
  void stop() throws Exception {
    server.shutdownNow().awaitTermination();
  }

  private GrpcStore store(String... pairs) throws Exception {
    Settings settings = Settings.of(SettingsTest.properties(pairs));
    return new GrpcStore(settings, new Settings.Address("127.0.0.1", server.getPort()));
  }

  private List<String> tokens() {
    return fake.contexts.stream().map(Context::getSession).toList();
  }

  @Test
  void theSessionTravels() throws Exception {
    try (GrpcStore store = store("rheostat.keyspace", "3", "rheostat.timeout.ms", "5000")) {
      store.put(KEY, KEY);
      assertEquals(0, store.get(KEY).length, "an empty value is a value");
      store.put(KEY, KEY);
    }
    assertEquals(List.of("", "token-1", "token-2"), tokens());
    assertEquals("3", fake.contexts.get(0).getKeyspace());
    assertEquals(5000, fake.contexts.get(0).getDeadlineMs());
  }

  @Test
  void withoutSessionsEachOperationBeginsANewOne() throws Exception {
    try (GrpcStore store = store("rheostat.keyspace", "orders", "rheostat.session", "none")) {
      store.put(KEY, KEY);
      store.get(KEY);
    }
    assertEquals(List.of("", ""), tokens());
  }

  @Test
  void theDialGoesWithTheRequest() throws Exception {
    String[] dialled = {"rheostat.keyspace", "orders", "rheostat.level", "monotonic-reads+read-your-writes", "rheostat.strategy", "coordinated"};
    try (GrpcStore store = store(dialled)) {
      store.get(KEY);
    }
    Dial dial = fake.dials.get(0);
    assertEquals(Level.LEVEL_SESSION, dial.getLevel());
    assertEquals(List.of(Guarantee.GUARANTEE_MONOTONIC_READS, Guarantee.GUARANTEE_READ_YOUR_WRITES), dial.getGuaranteesList());
    assertEquals(Strategy.STRATEGY_COORDINATED, dial.getStrategy());
  }

  @Test
  void aKeyspaceThatIsNotThereIsSaidAtOnce() {
    StoreException error = assertThrows(StoreException.class, () -> store("rheostat.keyspace", "elsewhere"));
    assertTrue(error.getMessage().contains("no keyspace elsewhere"), error.getMessage());
  }

  @ParameterizedTest
  @CsvSource({
    "DEADLINE_EXCEEDED, TIMEOUT", "UNAVAILABLE, SERVICE_UNAVAILABLE", "RESOURCE_EXHAUSTED, SERVICE_UNAVAILABLE", "UNAUTHENTICATED, FORBIDDEN",
    "FAILED_PRECONDITION, UNEXPECTED_STATE", "INVALID_ARGUMENT, BAD_REQUEST", "INTERNAL, ERROR", "UNIMPLEMENTED, NOT_IMPLEMENTED",
  })
  void codesBecomeStatuses(String code, String status) throws Exception {
    try (GrpcStore store = store("rheostat.keyspace", "orders")) {
      store.put(KEY, KEY);
      fake.failure = Status.Code.valueOf(code).toStatus();
      assertEquals(status, assertThrows(StoreException.class, () -> store.get(KEY)).status().getName());
      fake.failure = null;
      store.get(KEY);
    }
    assertEquals("token-1", tokens().get(2), "a failure does not end the session");
  }

  @Test
  void aServerThatIsSilentIsWaitedForNoLongerThanAllowed() throws Exception {
    fake.silent = true;
    try (GrpcStore store = store("rheostat.keyspace", "orders", "rheostat.timeout.ms", "3000")) {
      assertEquals("TIMEOUT", assertThrows(StoreException.class, () -> store.get(KEY)).status().getName());
    }
  }
}
