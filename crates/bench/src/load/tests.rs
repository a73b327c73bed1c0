use super::*;
use crate::limit::LimitServer;
use crate::report::Report;
use crate::target::resp::RespTarget;
use crate::workload::{CoreWorkload, OperationKind, RequestDistribution};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn options(workload: CoreWorkload, operations: u64) -> LoadOptions {
    let mut options = LoadOptions::new(Workload::core(workload));
    options.workload.record_count = 200;
    options.connections = 5;
    options.threads = 2;
    options.warm_up = Duration::ZERO;
    options.duration = None;
    options.operations = Some(operations);
    options
}

fn target(address: impl ToString) -> Target {
    Target::Resp(RespTarget::new("test", address.to_string()))
}

async fn run_on_limit(options: &LoadOptions) -> (LoadReport, u64) {
    let server = LimitServer::start(options.workload.value_length()).await.unwrap();
    let report = run(&target(server.address()), options, &Progress::hidden()).await.unwrap();
    (report, server.answered())
}

#[tokio::test]
async fn a_closed_loop_does_exactly_the_operations_asked_for() {
    for (workload, kinds) in [
        (CoreWorkload::A, &[OperationKind::Read, OperationKind::Update][..]),
        (CoreWorkload::D, &[OperationKind::Read, OperationKind::Insert]),
        (CoreWorkload::E, &[OperationKind::Insert, OperationKind::Scan]),
    ] {
        let mut options = options(workload, 3001);
        options.pacing = Pacing::Closed { pipeline: 7 };
        let (report, answered) = run_on_limit(&options).await;
        assert_eq!(report.loading.as_ref().unwrap().succeeded, 200);
        assert_eq!((report.measured.succeeded, report.measured.failed), (3001, 0));
        assert_eq!(answered, 3201);
        assert_eq!(report.measured.kinds.iter().map(|kind| kind.kind).collect::<Vec<_>>(), kinds);
        assert_eq!(report.text().contains("SCAN is one MGET"), workload == CoreWorkload::E);
    }
}

#[tokio::test]
async fn a_read_modify_write_is_two_requests_and_one_operation() {
    let mut options = options(CoreWorkload::F, 1000);
    options.load_records = false;
    options.workload.read = 0.0;
    let (report, answered) = run_on_limit(&options).await;
    assert_eq!(report.measured.succeeded, 1000);
    assert_eq!(answered, 2000);
    assert!(report.loading.is_none());
}

#[tokio::test]
async fn an_open_loop_sends_what_its_schedule_says() {
    let mut options = options(CoreWorkload::B, 1_000_000);
    options.pacing = Pacing::Open { rate: 2000.0, arrivals: Arrivals::Even, in_flight: 10 };
    options.duration = Some(Duration::from_millis(250));
    let (report, _) = run_on_limit(&options).await;
    // 500 are due before the end, whatever the machine did: sent or counted as unsent.
    assert_eq!(report.measured.succeeded + report.measured.unsent, 500);
    assert_eq!(report.measured.lateness.unwrap().count, report.measured.succeeded);
}

#[tokio::test]
async fn the_warm_up_is_not_recorded() {
    let mut options = options(CoreWorkload::C, 100);
    options.warm_up = Duration::from_millis(50);
    options.load_records = false;
    let (report, answered) = run_on_limit(&options).await;
    assert_eq!(report.measured.succeeded, 100);
    assert!(answered > 100, "{answered}");
}

/// A server that answers so many reads of each connection with `answer`, and then closes it.
async fn closing_server(answer: &'static [u8], answers: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            for _ in 0..answers {
                // One request is one read here: the load waits for each answer.
                if !matches!(stream.read(&mut buffer).await, Ok(1..)) || stream.write_all(answer).await.is_err() {
                    break;
                }
            }
        }
    });
    address
}

#[tokio::test]
async fn errors_are_counted_by_their_first_word_and_absent_records_apart() {
    let mut options = options(CoreWorkload::C, 50);
    (options.connections, options.threads, options.load_records) = (1, 1, false);
    let address = closing_server(b"-BUSY queue is full\r\n", usize::MAX).await;
    let report = run(&target(address), &options, &Progress::hidden()).await.unwrap();
    assert_eq!((report.measured.succeeded, report.measured.failed), (0, 50));
    assert_eq!(report.measured.failures_summary(), "50 BUSY");
    let address = closing_server(b"$-1\r\n", usize::MAX).await;
    let report = run(&target(address), &options, &Progress::hidden()).await.unwrap();
    assert_eq!(report.measured.kinds[0].not_found, 50);
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_its_requests_have_failed() {
    let mut options = options(CoreWorkload::C, 50);
    (options.connections, options.threads, options.load_records) = (1, 1, false);
    let address = closing_server(b"$1\r\nx\r\n", 9).await;
    let report = run(&target(address), &options, &Progress::hidden()).await.unwrap();
    // Of each ten operations nine are answered, and one finds the connection closed.
    assert_eq!((report.measured.succeeded, report.measured.failed), (45, 5));
    assert_eq!(report.measured.failures_summary(), "5 connection");
    assert_eq!(report.measured.reconnections, 5);
}

#[tokio::test]
async fn a_silent_server_is_a_timeout_and_a_refused_load_is_an_error() {
    let mut options = options(CoreWorkload::C, 3);
    (options.connections, options.threads, options.load_records) = (1, 1, false);
    options.timeout = Duration::from_millis(20);
    let address = closing_server(b"", usize::MAX).await;
    let report = run(&target(address), &options, &Progress::hidden()).await.unwrap();
    assert_eq!(report.measured.failures_summary(), "3 timeout");
    // The other one answers, however slow the machine is.
    options.timeout = Duration::from_secs(60);
    options.load_records = true;
    options.workload.record_count = 1;
    let address = closing_server(b"-NOSPACE\r\n", usize::MAX).await;
    let error = run(&target(address), &options, &Progress::hidden()).await.unwrap_err().to_string();
    assert!(error.contains("1 of 1 records could not be loaded (1 NOSPACE)"), "{error}");
}

#[tokio::test]
async fn nobody_listening_ends_the_load_with_an_error() {
    // No port that the system gives away.
    let address = "127.0.0.1:1";
    assert!(matches!(run(&target(address), &options(CoreWorkload::A, 1), &Progress::hidden()).await, Err(Error::Connection { .. })));
}

#[test]
fn impossible_loads_are_refused_by_name() {
    let refused = |change: fn(&mut LoadOptions)| {
        let mut options = options(CoreWorkload::A, 10);
        options.workload.request_distribution = RequestDistribution::Uniform;
        change(&mut options);
        options.check().unwrap_err().to_string()
    };
    assert!(refused(|options| options.connections = 0).contains("number of connections is 0"));
    assert!(refused(|options| options.threads = 6).contains("number of threads is 6; it must be from 1 to 5"));
    assert!(refused(|options| options.operations = None).contains("no end"));
    assert!(refused(|options| options.pacing = Pacing::Closed { pipeline: 0 }).contains("pipeline is 0"));
    assert!(refused(|options| options.pacing = Pacing::Open { rate: f64::NAN, arrivals: Arrivals::Even, in_flight: 1 }).contains("rate per second"));
    assert!(refused(|options| options.duration = Some(Duration::ZERO)).contains("duration"));
}

#[test]
fn connections_do_not_share_their_random_sequences() {
    let mut seen = std::collections::HashSet::new();
    for connection in 0..50 {
        let seeds = Seeds::new(1, connection);
        for seed in [seeds.operations, seeds.values, seeds.schedule] {
            let mut random = Random::new(seed);
            assert!((0..1000).all(|_| seen.insert(random.next_u64())), "connection {connection} repeats another one");
        }
    }
}

#[test]
fn poisson_schedules_of_many_connections_have_the_rate_together() {
    let due = |connection: usize| {
        let mut schedule = schedule::Schedule::new(20_000.0, Arrivals::Poisson, connection, 50, Seeds::new(1, connection).schedule);
        let mut count = 0_u32;
        while schedule.due() < Duration::from_secs(3) {
            schedule.advance();
            count += 1;
        }
        count
    };
    let total: u32 = (0..50).map(due).sum();
    // The deviation of a Poisson count of 60 000 is 245.
    assert!((58_775..61_225).contains(&total), "{total}");
}
