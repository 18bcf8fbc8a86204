//! Subrequests of Lua scripts: the site answers them like any other request, and the answer is
//! collected for the script.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{Method, Version};
use sendoff_delivery::segment::Segment;
use sendoff_exchange::client::{Client, NoClient};
use sendoff_exchange::sink::{Collector, Fit};
use sendoff_lua::Reply;
use sendoff_lua_host::{Asked, Asks};
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_message::response::{Field, Framing, ResponseHead};
use sendoff_site::Site;

use crate::services::Services;

/// Maximum nesting depth of subrequests, of scripts and of pages that include fragments: each level
/// multiplies their number. Varnish's pages include 5 deep.
pub(crate) const MAX_DEPTH: u8 = 4;

/// Maximum size in bytes of an answer to a subrequest.
const MAX_ANSWER: usize = 1 << 20;

/// Bytes of a file per read.
const PIECE: usize = 64 * 1024;

/// Makes the subrequests of a script; `depth` is the number of subrequests around the script.
pub(crate) struct Asker<'s> {
    pub(crate) services: &'s Services,
    pub(crate) site: &'s Rc<Site>,
    pub(crate) depth: u8,
}

impl Asks for Asker<'_> {
    fn ask(&self, mut request: Request) -> Asked<'_> {
        Box::pin(async move {
            if self.depth >= MAX_DEPTH {
                return Err(format!("subrequests lie {MAX_DEPTH} deep in one another"));
            }
            request.trace = None;
            let mut answer = ResponseBuffer::new(&request.method);
            let depth = self.depth + 1;
            let answered = self.services.answer_script(self.site, &mut request, depth, &mut answer);
            match answered.await {
                Ok(()) => answer.into_reply(),
                Err(cut) => Err(cut.to_string()),
            }
        })
    }
}

/// Collects a response in memory, for a script or an authorizer's question. Its client is never
/// gone.
pub(crate) struct ResponseBuffer {
    method: Method,
    head: Option<ResponseHead>,
    framing: Framing,
    body: BytesMut,
    /// Maximum size of the body in bytes.
    most: usize,
    client: NoClient,
}

impl ResponseBuffer {
    pub(crate) fn new(method: &Method) -> Self {
        Self::with_limit(method, MAX_ANSWER)
    }

    /// Collects a response whose body has at most `most` bytes.
    pub(crate) fn with_limit(method: &Method, most: usize) -> Self {
        Self {
            most,
            method: method.clone(),
            head: None,
            framing: Framing::Chunked,
            body: BytesMut::new(),
            client: NoClient::default(),
        }
    }

    pub(crate) fn into_reply(self) -> Result<Reply, String> {
        let head = self.head.ok_or("no response came")?;
        let fields = head.fields.into_iter().map(Field::into_parts).collect();
        Ok(Reply { status: head.status.as_u16(), fields, body: self.body.freeze() })
    }

    fn keep(&mut self, bytes: &Bytes) -> Result<(), Cut> {
        if self.body.len() + bytes.len() > self.most {
            let why = format!("the answer has more than {} bytes", self.most);
            return Err(Cut::application(why));
        }
        self.body.extend_from_slice(bytes);
        Ok(())
    }
}

impl Collector for ResponseBuffer {
    fn begin(&mut self, head: ResponseHead) {
        self.framing = Framing::choose(&self.method, Version::HTTP_11, head.status, head.length);
        self.head = Some(head);
    }

    fn push(&mut self, mut segment: Segment) -> Result<Fit, Cut> {
        let fit = Fit::of(&mut segment, &mut self.framing);
        match segment {
            Segment::Bytes(bytes) => self.keep(&bytes)?,
            Segment::File(mut file) => {
                while file.len > 0 {
                    let bytes = file.read(PIECE)?;
                    self.keep(&bytes)?;
                }
            }
        }
        Ok(fit)
    }

    fn end(&mut self) -> u64 {
        self.framing.missing()
    }

    fn client(&mut self) -> &mut dyn Client {
        &mut self.client
    }
}
