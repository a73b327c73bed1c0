package rheostat.ycsb;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import rheostat.v1.Rheostat.Context;
import rheostat.v1.Rheostat.DeleteRequest;
import rheostat.v1.Rheostat.DeleteResponse;
import rheostat.v1.Rheostat.Dial;
import rheostat.v1.Rheostat.GetRequest;
import rheostat.v1.Rheostat.GetResponse;
import rheostat.v1.Rheostat.Guarantee;
import rheostat.v1.Rheostat.Item;
import rheostat.v1.Rheostat.Level;
import rheostat.v1.Rheostat.PutManyRequest;
import rheostat.v1.Rheostat.PutRequest;
import rheostat.v1.Rheostat.Read;
import rheostat.v1.Rheostat.ReadTransactionRequest;
import rheostat.v1.Rheostat.ReadTransactionResponse;
import rheostat.v1.Rheostat.Strategy;
import rheostat.v1.Rheostat.TopologyRequest;
import rheostat.v1.Rheostat.TopologyResponse;
import rheostat.v1.StoreGrpc;
import site.ycsb.Status;

/** A session over gRPC: its token travels with every request and reply, so it outlives connections. */
final class GrpcStore implements Store {
  private static final int CLOSE_TIMEOUT_MS = 1000;

  private final Settings settings;
  private final Settings.Address address;
  private final ManagedChannel channel;
  private final StoreGrpc.StoreBlockingStub stub;
  private final Dial dial;
  private String token = "";

  /** Connects at once, and looks whether the keyspace is there. */
  GrpcStore(Settings settings, Settings.Address address) throws StoreException {
    this.settings = settings;
    this.address = address;
    this.dial = dial(settings);
    channel = ManagedChannelBuilder.forAddress(address.host(), address.port()).usePlaintext().directExecutor().build();
    StoreGrpc.StoreBlockingStub plain = StoreGrpc.newBlockingStub(channel);
    if (settings.password().isEmpty()) {
      stub = plain;
    } else {
      Metadata metadata = new Metadata();
      metadata.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + settings.password());
      stub = plain.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(metadata));
    }
    try {
      TopologyResponse topology = call(calls -> calls.topology(TopologyRequest.getDefaultInstance()));
      String wanted = settings.keyspace();
      boolean there = topology.getKeyspacesList().stream()
          .anyMatch(each -> each.getName().equals(wanted) || Integer.toUnsignedString(each.getNumber()).equals(wanted));
      if (!there) {
        throw new StoreException(Status.BAD_REQUEST, address + " has no keyspace " + wanted, null);
      }
    } catch (StoreException error) {
      close();
      throw error;
    }
  }

  @Override
  public byte[] get(byte[] key) throws StoreException {
    GetRequest request = GetRequest.newBuilder().setContext(context()).setKey(wrap(key)).setDial(dial).build();
    GetResponse response = call(calls -> calls.get(request));
    token = response.getSession();
    return value(response.getRead());
  }

  @Override
  public List<byte[]> getAll(List<byte[]> keys) throws StoreException {
    ReadTransactionRequest.Builder request = ReadTransactionRequest.newBuilder().setContext(context()).setDial(dial);
    keys.forEach(key -> request.addKeys(wrap(key)));
    ReadTransactionResponse response = call(calls -> calls.readTransaction(request.build()));
    token = response.getSession();
    if (response.getReadsCount() != keys.size()) {
      throw new StoreException(Status.UNEXPECTED_STATE, address + " answered " + keys.size() + " keys with " + response.getReadsCount() + " values", null);
    }
    List<byte[]> values = new ArrayList<>(keys.size());
    response.getReadsList().forEach(read -> values.add(value(read)));
    return values;
  }

  @Override
  public void put(byte[] key, byte[] value) throws StoreException {
    Item item = Item.newBuilder().setKey(wrap(key)).setValue(wrap(value)).build();
    PutRequest request = PutRequest.newBuilder().setContext(context()).setItem(item).setDial(dial).build();
    token = call(calls -> calls.put(request)).getSession();
  }

  @Override
  public void putAll(List<byte[]> keys, List<byte[]> values) throws StoreException {
    PutManyRequest.Builder request = PutManyRequest.newBuilder().setContext(context()).setDial(dial);
    for (int i = 0; i < keys.size(); i++) {
      request.addItems(Item.newBuilder().setKey(wrap(keys.get(i))).setValue(wrap(values.get(i))));
    }
    token = call(calls -> calls.putMany(request.build())).getSession();
  }

  /** Several keys are read first, since {@code PutMany} does not say what was there. */
  @Override
  public boolean delete(List<byte[]> keys) throws StoreException {
    if (keys.size() == 1) {
      DeleteRequest request = DeleteRequest.newBuilder().setContext(context()).setKey(wrap(keys.get(0))).setDial(dial).build();
      DeleteResponse response = call(calls -> calls.delete(request));
      token = response.getSession();
      return response.getExisted();
    }
    if (getAll(keys).stream().allMatch(value -> value == null)) {
      return false;
    }
    PutManyRequest.Builder request = PutManyRequest.newBuilder().setContext(context()).setDial(dial);
    keys.forEach(key -> request.addItems(Item.newBuilder().setKey(wrap(key))));
    token = call(calls -> calls.putMany(request.build())).getSession();
    return true;
  }

  @Override
  public void close() {
    channel.shutdownNow();
    try {
      channel.awaitTermination(CLOSE_TIMEOUT_MS, TimeUnit.MILLISECONDS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  private Context context() {
    Context.Builder context = Context.newBuilder().setKeyspace(settings.keyspace()).setDeadlineMs(settings.timeoutMs());
    return settings.session() == Settings.SessionSpan.THREAD ? context.setSession(token).build() : context.build();
  }

  private <R> R call(Function<StoreGrpc.StoreBlockingStub, R> request) throws StoreException {
    try {
      return request.apply(stub.withDeadlineAfter(settings.timeoutMs(), TimeUnit.MILLISECONDS));
    } catch (StatusRuntimeException error) {
      throw new StoreException(status(error.getStatus().getCode()), address + ": " + error.getMessage(), error);
    }
  }

  /** What the codes stand for is said at the head of the interface's definition. */
  private static Status status(io.grpc.Status.Code code) {
    return switch (code) {
      case DEADLINE_EXCEEDED -> StoreException.TIMEOUT;
      case UNAVAILABLE, RESOURCE_EXHAUSTED -> Status.SERVICE_UNAVAILABLE;
      case UNAUTHENTICATED, PERMISSION_DENIED -> Status.FORBIDDEN;
      case FAILED_PRECONDITION -> Status.UNEXPECTED_STATE;
      case INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE -> Status.BAD_REQUEST;
      case UNIMPLEMENTED -> Status.NOT_IMPLEMENTED;
      default -> Status.ERROR;
    };
  }

  private static Dial dial(Settings settings) {
    Dial.Builder dial = Dial.newBuilder();
    dial.setLevel(switch (settings.level()) {
      case DEFAULT -> Level.LEVEL_UNSPECIFIED;
      case EVENTUAL -> Level.LEVEL_EVENTUAL;
      case CAUSAL -> Level.LEVEL_CAUSAL;
      case SESSION -> Level.LEVEL_SESSION;
      case LOCAL -> Level.LEVEL_LOCAL;
      case STRONG -> Level.LEVEL_STRONG;
    });
    for (Settings.Guarantee guarantee : settings.guarantees()) {
      dial.addGuarantees(switch (guarantee) {
        case MONOTONIC_READS -> Guarantee.GUARANTEE_MONOTONIC_READS;
        case READ_YOUR_WRITES -> Guarantee.GUARANTEE_READ_YOUR_WRITES;
        case MONOTONIC_WRITES -> Guarantee.GUARANTEE_MONOTONIC_WRITES;
        case WRITES_FOLLOW_READS -> Guarantee.GUARANTEE_WRITES_FOLLOW_READS;
      });
    }
    dial.setStrategy(switch (settings.strategy()) {
      case AUTO -> Strategy.STRATEGY_AUTO;
      case COORDINATED -> Strategy.STRATEGY_COORDINATED;
      case PREDICTED -> Strategy.STRATEGY_PREDICTED;
    });
    return dial.build();
  }

  /** The arrays are not changed after this. */
  private static ByteString wrap(byte[] bytes) {
    return UnsafeByteOperations.unsafeWrap(bytes);
  }

  private static byte[] value(Read read) {
    return read.hasValue() ? read.getValue().toByteArray() : null;
  }
}
