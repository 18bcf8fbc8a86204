//! Connections to the engine.

use std::fmt;
use std::mem::replace;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, RedisConnectionInfo, RedisError, Value,
};
use sendoff_config::{Engine, EngineAddress};
use sendoff_tls::{Password, TlsClient};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::counted::{Count, Counted, MAX_ANSWER};

/// Time limit for a connection with its handshakes, and for the answer to a command, or for a part
/// of it if the answer goes on arriving.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);

/// Most such parts: a slow way to the engine needs more than one for a batch of long records.
const MOST_PARTS: usize = 30;

/// The reason why the engine does not serve: a sentence about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trouble(pub(crate) String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        Self(match refusal(&error) {
            Some(said) => format!("it refuses a command: {said}"),
            None => error.to_string(),
        })
    }
}

/// The engine's sentence, if it refuses a command.
fn refusal(error: &RedisError) -> Option<String> {
    let said = format!("{} {}", error.code()?, error.detail().unwrap_or_default());
    Some(said.trim_end_matches([' ', '.']).to_owned())
}

impl Trouble {
    /// The engine's answer is not one to the question.
    pub(crate) fn unexpected(question: &str) -> Self {
        Self(format!("its answer to {question} cannot be understood"))
    }

    fn late() -> Self {
        Self(format!("it has not answered within {LIMIT:?}"))
    }
}

/// The engine of a configuration.
pub(crate) struct Client {
    engine: Engine,
    login: RedisConnectionInfo,
    /// An error in the root certificates is kept, and reported with each attempt.
    tls: Option<Result<TlsClient, String>>,
}

/// A socket, in the clear or with TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection. It answers commands in their order.
pub(crate) struct Connection {
    commands: MultiplexedConnection,
    count: Count,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Client {
    pub(crate) fn new(engine: Engine, password: Option<&Password>) -> Self {
        let mut login =
            RedisConnectionInfo::default().set_db(engine.database.into()).set_skip_set_lib_name();
        if let Some(user) = &engine.user {
            login = login.set_username(user);
        }
        if let Some(password) = password {
            login = login.set_password(password.text());
        }
        let tls = engine.tls.as_ref().map(|tls| TlsClient::new(tls, None));
        Self { engine, login, tls }
    }

    /// Makes a connection and logs in.
    pub(crate) async fn connect(&self) -> Result<Connection, Trouble> {
        let connecting = async {
            let count = Count::default();
            let socket = self.stream().await.map_err(Trouble)?;
            let stream = Counted { socket, count: count.clone() };
            // The limits are here: some answers are held back.
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let connected =
                MultiplexedConnection::new_with_config(&self.login, stream, config).await;
            let (commands, driver) = connected?;
            Ok(Connection { commands, count, driver: spawn_local(driver) })
        };
        timeout(LIMIT, connecting).await.unwrap_or_else(|_| Err(Trouble::late()))
    }

    async fn stream(&self) -> Result<Box<dyn Stream>, String> {
        let failed = |error: std::io::Error| format!("it cannot be connected to: {error}");
        let host_port = match &self.engine.address {
            EngineAddress::Unix(path) => {
                return Ok(Box::new(UnixStream::connect(path).await.map_err(failed)?));
            }
            EngineAddress::Tcp(host_port) => host_port,
        };
        let plain = TcpStream::connect(&**host_port).await.map_err(failed)?;
        plain.set_nodelay(true).map_err(failed)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(plain)) };
        let TlsClient { config, server_name } = tls.as_ref().map_err(Clone::clone)?;
        let connector = TlsConnector::from(Arc::clone(config));
        let shaken = connector.connect(server_name.clone(), plain).await;
        Ok(Box::new(shaken.map_err(|error| format!("TLS: {error}"))?))
    }
}

/// The value of a key.
pub(crate) enum Stored {
    /// The key does not exist.
    Nothing,
    /// A string.
    Bytes(Vec<u8>),
    /// Something else.
    Other,
}

impl Connection {
    /// The value of a key, or at most one byte more than `most` of it.
    pub(crate) async fn stored(&self, key: &str, most: usize) -> Result<Stored, Trouble> {
        let mut range = redis::cmd("GETRANGE");
        range.arg(key).arg(0).arg(most);
        let answer = timeout(LIMIT, self.answer(&range)).await;
        match answer.map_err(|_| Trouble::late())? {
            Ok(Value::BulkString(bytes)) if bytes.is_empty() => Ok(Stored::Nothing),
            Ok(Value::BulkString(bytes)) if bytes.len() <= most => Ok(Stored::Bytes(bytes)),
            Ok(Value::BulkString(_)) => Ok(Stored::Other),
            Ok(_) => Err(Trouble::unexpected("GETRANGE")),
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(Stored::Other),
            Err(error) => Err(error.into()),
        }
    }

    /// The answer to a command. The library takes a refusal for an answer like any other.
    async fn answer(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut commands = self.commands.clone();
        commands.req_packed_command(command).await.and_then(Value::extract_error)
    }

    /// The answer to a command.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Trouble> {
        self.ask_patiently(command, Duration::ZERO).await
    }

    /// The answer to a command that the engine may hold back for `hold`.
    pub(crate) async fn ask_patiently<T: FromRedisValue>(
        &self,
        command: &Cmd,
        hold: Duration,
    ) -> Result<T, Trouble> {
        self.count.begin();
        let mut answer = pin!(self.answer(command));
        let (mut known, mut limit) = (0, LIMIT + hold);
        for _ in 0..MOST_PARTS {
            if let Ok(answer) = timeout(limit, &mut answer).await {
                return Self::read(answer?);
            }
            let before = replace(&mut known, self.count.bytes());
            if known == before {
                break;
            }
            limit = LIMIT;
        }
        Err(Trouble::late())
    }

    /// True if the last answer was too long.
    pub(crate) fn had_too_much(&self) -> bool {
        self.count.bytes() > MAX_ANSWER
    }

    fn read<T: FromRedisValue>(value: Value) -> Result<T, Trouble> {
        T::from_redis_value(value).map_err(|error| Trouble(error.to_string()))
    }

    /// The answer to a command, or a sentence with which the engine refuses it: the connection still
    /// serves then.
    pub(crate) async fn ask_for<T: FromRedisValue>(
        &self,
        command: &Cmd,
    ) -> Result<Result<T, String>, Trouble> {
        self.count.begin();
        match timeout(LIMIT, self.answer(command)).await {
            Err(_) => Err(Trouble::late()),
            Ok(Err(error)) => refusal(&error).map(Err).ok_or_else(|| error.into()),
            Ok(Ok(value)) => Ok(T::from_redis_value(value).map_err(|error| error.to_string())),
        }
    }

    /// Sends several commands at once, and waits until all have succeeded.
    pub(crate) async fn ask_all(&self, commands: &Pipeline) -> Result<(), Trouble> {
        let mut connection = self.commands.clone();
        self.count.begin();
        let asked = connection.req_packed_commands(commands, 0, commands.len());
        let answers = timeout(LIMIT, asked).await.map_err(|_| Trouble::late())??;
        for answer in answers {
            answer.extract_error()?;
        }
        Ok(())
    }
}
