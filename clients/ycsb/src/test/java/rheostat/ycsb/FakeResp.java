package rheostat.ycsb;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.Function;

/** A server that notes requests in RESP and answers as it is told. An answer of null closes the connection, an empty one says nothing. */
final class FakeResp implements AutoCloseable {
  final List<String> requests = Collections.synchronizedList(new ArrayList<>());
  private final ServerSocket listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
  private final List<Socket> connections = Collections.synchronizedList(new ArrayList<>());
  private final Function<String, String> answers;

  FakeResp(Function<String, String> answers) throws IOException {
    this.answers = answers;
    daemon(this::accept);
  }

  int port() {
    return listener.getLocalPort();
  }

  /** Requests that are not of setting up a connection. */
  List<String> operations() {
    synchronized (requests) {
      return requests.stream().filter(request -> !request.startsWith("CLIENT ") && !request.startsWith("SELECT ")).toList();
    }
  }

  private void accept() {
    try {
      while (true) {
        Socket socket = listener.accept();
        connections.add(socket);
        daemon(() -> serve(socket));
      }
    } catch (IOException error) {
      // Closed.
    }
  }

  private void serve(Socket socket) {
    try (socket) {
      InputStream in = new BufferedInputStream(socket.getInputStream());
      while (true) {
        List<String> words = new ArrayList<>();
        for (int count = number(in); count > 0; count--) {
          byte[] word = in.readNBytes(number(in));
          in.readNBytes(2);
          words.add(new String(word, StandardCharsets.UTF_8));
        }
        String request = String.join(" ", words);
        requests.add(request);
        String answer = request.startsWith("CLIENT ") ? "+OK\r\n" : answers.apply(request);
        if (answer == null) {
          return;
        }
        socket.getOutputStream().write(answer.getBytes(StandardCharsets.UTF_8));
      }
    } catch (IOException error) {
      // The client has gone, or the test is over.
    }
  }

  /** The number of a line such as {@code *3} or {@code $5}. */
  private static int number(InputStream in) throws IOException {
    StringBuilder line = new StringBuilder();
    for (int next = in.read(); next != '\n'; next = in.read()) {
      if (next < 0) {
        throw new IOException("closed");
      }
      line.append((char) next);
    }
    return Integer.parseInt(line.substring(1).trim());
  }

  private static void daemon(Runnable task) {
    Thread thread = new Thread(task);
    thread.setDaemon(true);
    thread.start();
  }

  @Override
  public void close() throws IOException {
    listener.close();
    synchronized (connections) {
      for (Socket socket : connections) {
        socket.close();
      }
    }
  }
}
