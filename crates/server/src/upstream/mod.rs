//! Those who run scripts: workers and the links to them (`docs/handover.md` seen from the front), and FastCGI applications
//! that somebody else has started (`docs/fastcgi.md`).

mod cgi;
mod channel;
mod connections;
mod deadline;
mod exchange;
mod files;
mod framed;
mod gateway;
mod inbox;
mod link;
mod master;
mod pool;
mod region;
mod register;
mod stream;
mod tuner;
mod watch;

pub use cgi::{RequestMessage, RequestMessageBuilder, StreamedRequest};
pub use channel::{Channel, Claim, Claims};
pub use deadline::enforce;
pub use exchange::Exchange;
pub use gateway::{Application, ConnectError, sweep};
pub use inbox::Event;
pub use link::{Link, Links};
pub use master::Master;
pub use pool::{AcquireError, Pool, Ticket, WorkerId};
pub use register::{NewLink, Origin, receive_workers};
pub use tuner::tune;
