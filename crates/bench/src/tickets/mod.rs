//! `demo --story tickets`: the same tickets are sold twice, out of a weak counter and out of a bounded one, in all data centers at once, while one of them is cut off in the middle.
//!
//! Both kinds have as many sellers, who work at the same time and pace, so both sales meet the same delays and the same cut. A seller of weak tickets looks at the counter and decrements it
//! if it was positive (document 002, section V); a seller of bounded ones only decrements.

mod report;

pub use report::{Sale, TicketsReport};

use crate::counter::client::{CounterClient, Outcome, Style};
use crate::error::{Error, check_range};
use crate::target::resp::RespTarget;
use crate::thread::run_on_thread;
use rheostat_client::{Client, v1};
use rheostat_core::random::Random;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A data center that sells.
#[derive(Clone, PartialEq, Debug)]
pub struct BoxOffice {
    /// Where its sellers connect to; named after it.
    pub target: RespTarget,
    /// The gRPC address of its node, by which links are cut.
    pub grpc: String,
}

/// What is sold, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct TicketsOptions {
    /// The data centers, at least two. The last one is cut off from all others.
    pub data_centers: Vec<BoxOffice>,
    /// How many tickets there are of each kind.
    pub tickets: i64,
    /// Sellers of each kind in each data center.
    pub sellers: usize,
    /// Between two customers of a seller, on average.
    pub pause: Duration,
    /// It is cut off when so many percent of the bounded tickets are sold.
    pub cut_at_percent: u32,
    /// It is connected again after so long.
    pub cut_for: Duration,
    /// Everything ends after so long.
    pub longest: Duration,
    /// Part of every key, so that runs against the same servers do not meet.
    pub run: u64,
    /// Seed of the pauses.
    pub seed: u64,
}

impl TicketsOptions {
    /// 1000 tickets, 4 sellers of each kind in each data center with a customer every 30 ms, a cut of 4 s at 50 %, a minute at most.
    pub fn new(data_centers: Vec<BoxOffice>, run: u64) -> TicketsOptions {
        TicketsOptions {
            data_centers,
            tickets: 1000,
            sellers: 4,
            pause: Duration::from_millis(30),
            cut_at_percent: 50,
            cut_for: Duration::from_secs(4),
            longest: Duration::from_secs(60),
            run,
            seed: 1,
        }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`Error::Options`] that names the option and its bounds.
    pub fn check(&self) -> Result<(), Error> {
        check_range("number of data centers", self.data_centers.len(), 2, 64)?;
        self.data_centers.iter().try_for_each(|office| office.target.check())?;
        check_range("number of tickets", self.tickets, 1, 1_000_000)?;
        check_range("sellers", self.sellers, 1, 100)?;
        check_range("pause in seconds", self.pause.as_secs_f64(), 0.0, 10.0)?;
        check_range("percent sold at the cut", self.cut_at_percent, 0, 100)?;
        check_range("length of the cut in seconds", self.cut_for.as_secs_f64(), 0.0, 600.0)?;
        check_range("longest time in seconds", self.longest.as_secs_f64(), 1.0, 3600.0)
    }
}

/// What happens, as it happens.
#[derive(Clone, PartialEq, Debug)]
pub enum Scene {
    /// So it stands.
    Progress {
        /// Since the beginning.
        at: Duration,
        /// Of each kind, weak and bounded: tickets sold in each data center, and what is left as each data center sees it.
        kinds: [(Vec<u64>, Vec<Option<i64>>); 2],
    },
    /// Nothing passes between this data center and the others.
    Cut(String),
    /// It is connected again.
    Healed(String),
}

/// How often [`Scene::Progress`] comes.
const GLANCE: Duration = Duration::from_millis(500);

/// An update may take so long.
const TIMEOUT: Duration = Duration::from_secs(10);

/// For how long a seller is refused, once all are connected again, before it goes home.
const PATIENCE: Duration = Duration::from_secs(1);

/// For how long the data centers may take to agree in the end.
const AGREEMENT: Duration = Duration::from_secs(15);

/// The two kinds of tickets, in the order of [`Scene::Progress`].
const KINDS: [Style; 2] = [Style::Weak, Style::Bounded];

/// Sells. `tell` hears what happens, on the caller's thread.
///
/// # Errors
/// [`Error::Options`]; errors of connecting; a server that refuses to make a counter or to cut a link.
pub async fn run(options: &TicketsOptions, mut tell: impl FnMut(&Scene)) -> Result<TicketsReport, Error> {
    options.check()?;
    let (scenes, mut heard) = mpsc::channel(64);
    let story = Story { options: options.clone(), scenes };
    let running = run_on_thread("tickets", move || story.tell());
    tokio::pin!(running);
    loop {
        tokio::select! {
            biased;
            Some(scene) = heard.recv() => tell(&scene),
            result = &mut running => return result,
        }
    }
}

/// What a seller has done, and what it is to do.
#[derive(Default)]
struct Board {
    /// By kind and data center.
    sales: Mutex<[Vec<Sale>; 2]>,
    /// All are connected again, and will stay so.
    healed: AtomicBool,
}

impl Board {
    fn with<T>(&self, look: impl FnOnce(&mut [Vec<Sale>; 2]) -> T) -> T {
        look(&mut self.sales.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Story {
    options: TicketsOptions,
    scenes: mpsc::Sender<Scene>,
}

impl Story {
    async fn tell(self) -> Result<TicketsReport, Error> {
        let options = &self.options;
        let begun = Instant::now();
        let keys = KINDS.map(|kind| Arc::new(format!("tickets:{}:{}", kind.name(), options.run).into_bytes()));
        let mut eyes = Vec::new();
        for (place, office) in options.data_centers.iter().enumerate() {
            let mut of_office = Vec::new();
            for (kind, key) in KINDS.into_iter().zip(&keys) {
                let mut client = CounterClient::connect(&office.target, kind, TIMEOUT).await?;
                match place {
                    0 => client.create(key, options.tickets).await?,
                    _ => client.appears(key, begun + AGREEMENT).await?,
                }
                of_office.push(client);
            }
            eyes.push(of_office);
        }
        let board = Arc::new(Board::default());
        board.with(|sales| sales.fill(vec![Sale::default(); options.data_centers.len()]));
        let mut sellers = JoinSet::new();
        for (place, office) in options.data_centers.iter().enumerate() {
            for number in 0..options.sellers {
                for (kind, key) in keys.iter().enumerate() {
                    let random = Random::new(options.seed.wrapping_add(((place * 1000 + number) as u64) << 20));
                    let seller = Seller {
                        board: board.clone(),
                        place,
                        kind,
                        key: key.clone(),
                        target: office.target.clone(),
                        options: options.clone(),
                        random,
                    };
                    sellers.spawn(seller.sell(begun));
                }
            }
        }
        let cut = self.sell_and_cut(&mut sellers, &mut eyes, &board, &keys, begun).await?;
        let left = self.agree(&mut eyes, &board, &keys).await?;
        let names = options.data_centers.iter().map(|office| office.target.name.clone()).collect();
        let sales = board.with(|sales| sales.clone());
        Ok(TicketsReport::new(options.tickets, names, sales, left, cut, begun.elapsed()))
    }

    /// Looks on until all sellers have gone home; cuts the last data center off meanwhile. Returns for how long.
    async fn sell_and_cut(
        &self,
        sellers: &mut JoinSet<Result<(), Error>>,
        eyes: &mut [Vec<CounterClient>],
        board: &Board,
        keys: &[Arc<Vec<u8>>; 2],
        begun: Instant,
    ) -> Result<Option<Duration>, Error> {
        let options = &self.options;
        let (mut cut, mut lasted) = (None, None);
        let mut glance = tokio::time::interval(GLANCE);
        // What is cut off is connected again whatever happens to the sellers.
        let result = loop {
            tokio::select! {
                ended = sellers.join_next() => match ended {
                    None => break Ok(()),
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => break Err(error),
                    Some(Err(error)) => break Err(Error::Program(format!("a seller failed: {error}"))),
                },
                _ = glance.tick() => {
                    if let Err(error) = self.glance(eyes, board, keys, begun).await {
                        break Err(error);
                    }
                }
            }
            let sold = board.with(|sales| sales[1].iter().map(|sale| sale.sold).sum::<u64>());
            let due = sold * 100 >= options.tickets as u64 * u64::from(options.cut_at_percent);
            match cut {
                None if due => {
                    if let Err(error) = self.links(true).await {
                        break Err(error);
                    }
                    cut = Some(Instant::now());
                }
                Some(at) if lasted.is_none() && at.elapsed() >= options.cut_for => {
                    if let Err(error) = self.links(false).await {
                        break Err(error);
                    }
                    lasted = Some(at.elapsed());
                    board.healed.store(true, Ordering::Relaxed);
                }
                _ => {}
            }
        };
        if let (Some(at), None) = (cut, lasted) {
            self.links(false).await?;
            lasted = Some(at.elapsed());
        }
        self.glance(eyes, board, keys, begun).await?;
        result.map(|()| lasted)
    }

    async fn glance(&self, eyes: &mut [Vec<CounterClient>], board: &Board, keys: &[Arc<Vec<u8>>; 2], begun: Instant) -> Result<(), Error> {
        let at = begun.elapsed();
        let mut kinds = board.with(|sales| [0, 1].map(|kind: usize| (sales[kind].iter().map(|sale| sale.sold).collect::<Vec<u64>>(), Vec::new())));
        for of_office in eyes {
            for (kind, client) in of_office.iter_mut().enumerate() {
                kinds[kind].1.push(client.value(&keys[kind]).await?);
            }
        }
        self.say(Scene::Progress { at, kinds }).await;
        Ok(())
    }

    async fn say(&self, scene: Scene) {
        // A caller that is gone hears nothing.
        let _ = self.scenes.send(scene).await;
    }

    /// Cuts the links between the last data center and all others, or heals them.
    async fn links(&self, cut: bool) -> Result<(), Error> {
        let Some((last, others)) = self.options.data_centers.split_last() else { return Ok(()) };
        for other in others {
            for office in [last, other] {
                let refused = |detail: String| Error::Refused { address: office.grpc.clone(), detail };
                let client = Client::connect([office.grpc.clone()]).await.map_err(|error| refused(error.to_string()))?;
                let [data_center, other] = [last, other].map(|office| office.target.name.clone());
                let request = client.request(v1::LinkRequest { data_center, other });
                let mut admin = client.admin();
                let answer = if cut { admin.pause_link(request).await } else { admin.resume_link(request).await };
                answer.map_err(|status| refused(status.message().to_owned()))?;
            }
        }
        let name = last.target.name.clone();
        self.say(if cut { Scene::Cut(name) } else { Scene::Healed(name) }).await;
        Ok(())
    }

    /// Waits until every data center sees what the sales leave; returns what each sees, by kind.
    async fn agree(&self, eyes: &mut [Vec<CounterClient>], board: &Board, keys: &[Arc<Vec<u8>>; 2]) -> Result<[Vec<Option<i64>>; 2], Error> {
        let until = Instant::now() + AGREEMENT;
        let expected =
            board.with(|sales| [0, 1].map(|kind: usize| self.options.tickets - sales[kind].iter().map(|sale| sale.sold as i64).sum::<i64>()));
        loop {
            let mut left = [Vec::new(), Vec::new()];
            for of_office in eyes.iter_mut() {
                for (kind, client) in of_office.iter_mut().enumerate() {
                    left[kind].push(client.value(&keys[kind]).await?);
                }
            }
            let agreed = left.iter().zip(expected).all(|(seen, expected)| seen.iter().all(|value| *value == Some(expected)));
            if agreed || Instant::now() > until {
                return Ok(left);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

struct Seller {
    board: Arc<Board>,
    place: usize,
    kind: usize,
    key: Arc<Vec<u8>>,
    target: RespTarget,
    options: TicketsOptions,
    random: Random,
}

impl Seller {
    /// Sells until nothing is left.
    async fn sell(mut self, begun: Instant) -> Result<(), Error> {
        let style = KINDS[self.kind];
        let mut client = CounterClient::connect(&self.target, style, TIMEOUT).await?;
        // Since when nothing but refusals came, all being connected.
        let mut refused_since: Option<Instant> = None;
        while refused_since.is_none_or(|since| since.elapsed() < PATIENCE) && begun.elapsed() < self.options.longest {
            let pause = self.options.pause;
            tokio::time::sleep(pause / 2 + Duration::from_nanos(self.random.below(pause.as_nanos() as u64 + 1))).await;
            let asked = Instant::now();
            let connected = self.board.healed.load(Ordering::Relaxed);
            let outcome = match client.update(&self.key, -1).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    client = CounterClient::connect(&self.target, style, TIMEOUT).await?;
                    Outcome::Failed(error.kind().to_owned())
                }
            };
            refused_since = match outcome {
                Outcome::Refused if connected => refused_since.or(Some(asked)),
                _ => None,
            };
            self.board.with(|sales| sales[self.kind][self.place].count(&outcome, asked.elapsed()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_options_are_refused() {
        let office = |name: &str| BoxOffice { target: RespTarget::new(name, "127.0.0.1:1"), grpc: "127.0.0.1:2".to_owned() };
        let good = TicketsOptions::new(vec![office("a"), office("b")], 1);
        good.check().unwrap();
        let one = TicketsOptions { data_centers: vec![office("a")], ..good.clone() };
        assert!(one.check().unwrap_err().to_string().contains("number of data centers is 1"));
        assert!(TicketsOptions { tickets: 0, ..good }.check().unwrap_err().to_string().contains("number of tickets is 0"));
    }
}
