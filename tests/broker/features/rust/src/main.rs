//! `features ENDPOINT`: prints "= FEATURE: yes", or what happened instead.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

const PATIENCE: Duration = Duration::from_secs(60);

type Outcome = Result<(String, String), Box<dyn Error>>;

fn say(name: &str, outcome: Outcome) {
    let said = match outcome {
        Ok((expected, found)) if expected == found => "yes".to_string(),
        Ok((expected, found)) => format!("not {expected}, but {found}"),
        Err(error) => format!("{error:?}").replace('\n', " "),
    };
    println!("= {name}: {said}");
}

fn client(endpoint: &str) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(endpoint);
    option.set_enable_tls(false);
    option.set_timeout(Duration::from_secs(10));
    option
}

fn option(topic: &str) -> ProducerOption {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    option
}

async fn producer(endpoint: &str, topic: &str) -> Result<Producer, Box<dyn Error>> {
    let mut made = Producer::new(option(topic), client(endpoint))?;
    made.start().await?;
    Ok(made)
}

/// Bodies of messages that are received and acknowledged, until there are so many.
async fn bodies(
    endpoint: &str,
    group: &str,
    topic: &str,
    filter: (FilterType, &str),
    count: usize,
) -> Result<Vec<String>, Box<dyn Error>> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic]);
    option.set_consumer_group(group);
    let mut consumer = SimpleConsumer::new(option, client(endpoint))?;
    consumer.start().await?;
    let filter = FilterExpression::new(filter.0, filter.1);
    let (mut found, begun) = (Vec::new(), Instant::now());
    while found.len() < count && begun.elapsed() < PATIENCE {
        for each in consumer.receive(topic, &filter).await? {
            found.push(String::from_utf8_lossy(each.body()).to_string());
            consumer.ack(&each).await?;
        }
    }
    Ok(found)
}

fn text(mut found: Vec<String>) -> String {
    found.sort();
    found.join(" ")
}

async fn filters(endpoint: &str) -> Outcome {
    let producer = producer(endpoint, "normal").await?;
    for at in 4..8 {
        let made = MessageBuilder::builder()
            .set_topic("normal")
            .set_body(format!("m{at}").into_bytes())
            .set_tag(format!("t{}", at % 2))
            .set_keys(vec![format!("k{at}")])
            .set_properties([("n", at.to_string())].into());
        producer.send(made.build()?).await?;
    }
    let found = bodies(endpoint, "tags", "normal", (FilterType::Tag, "t1||t3"), 2).await?;
    Ok(("m5 m7".into(), text(found)))
}

async fn sql(endpoint: &str) -> Outcome {
    let found = bodies(endpoint, "sql", "normal", (FilterType::Sql, "n > 5"), 2).await?;
    Ok(("m6 m7".into(), text(found)))
}

async fn orderly(endpoint: &str) -> Outcome {
    let (producer, mut expected) = (producer(endpoint, "ordered").await?, Vec::new());
    for at in 0..20 {
        let body = at.to_string();
        let made =
            MessageBuilder::fifo_message_builder("ordered", body.clone().into_bytes(), "one");
        producer.send(made.build()?).await?;
        expected.push(body);
    }
    let found = bodies(endpoint, "ordering", "ordered", (FilterType::Tag, "*"), 20).await?;
    Ok((expected.join(" "), found.join(" ")))
}

async fn timed(endpoint: &str) -> Outcome {
    let producer = producer(endpoint, "delayed").await?;
    let due_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64 + 3;
    let made = MessageBuilder::delay_message_builder("delayed", b"late".to_vec(), due_s);
    producer.send(made.build()?).await?;
    let found = bodies(endpoint, "delaying", "delayed", (FilterType::Tag, "*"), 1).await?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
    Ok((
        "late, early false".into(),
        format!("{}, early {}", text(found), now_s < due_s - 1),
    ))
}

async fn transactions(endpoint: &str) -> Outcome {
    let checked = Arc::new(Mutex::new(Vec::new()));
    let noted = checked.clone();
    let checker = move |_id: String, half: rocketmq::model::message::MessageView| {
        let body = String::from_utf8_lossy(half.body()).to_string();
        noted.lock().unwrap().push(body.clone());
        if body == "open-yes" {
            TransactionResolution::COMMIT
        } else {
            TransactionResolution::ROLLBACK
        }
    };
    let mut producer =
        Producer::new_transaction_producer(option("half"), client(endpoint), Box::new(checker))?;
    producer.start().await?;
    for body in ["committed", "rolled", "open-no", "open-yes"] {
        let made = MessageBuilder::transaction_message_builder("half", body.as_bytes().to_vec());
        let transaction = producer.send_transaction_message(made.build()?).await?;
        match body {
            "committed" => drop(transaction.commit().await?),
            "rolled" => drop(transaction.rollback().await?),
            _ => {}
        }
    }
    let found = bodies(endpoint, "halves", "half", (FilterType::Tag, "*"), 2).await?;
    let asked = checked.lock().unwrap().contains(&"open-yes".to_string());
    Ok((
        "committed open-yes, checked true".into(),
        format!("{}, checked {asked}", text(found)),
    ))
}

#[tokio::main]
async fn main() {
    let endpoint = std::env::args().nth(1).expect("an endpoint");
    let tags = filters(&endpoint).await;
    let pops = if tags.is_ok() {
        ("sent", "sent")
    } else {
        ("sent", "refused")
    };
    say("send", Ok((pops.0.into(), pops.1.into())));
    say("pop", Ok((pops.0.into(), pops.1.into())));
    say("tags", tags);
    say("SQL filters", sql(&endpoint).await);
    say("orderly", orderly(&endpoint).await);
    say("timed", timed(&endpoint).await);
    say("transactions", transactions(&endpoint).await);
    println!("= end: reached");
    std::process::exit(0);
}
