//! Requests the fragments of one page and puts them in their places.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};
use sendoff_delivery::DiskStore;
use sendoff_delivery::segment::Segment;
use sendoff_esi::body::Body;
use sendoff_esi::head::{Merged, PageHead};
use sendoff_esi::target::target;
use sendoff_esi::template::{Attempt, Include, Node, OnError};
use sendoff_esi::terms::{Terms, stated_age};
use sendoff_esi::variables::Text;
use sendoff_message::response::ResponseHead;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::fragment::{Fragment, FragmentSink, piece, request_for};
use super::kept::Markup;
use super::plan::{FragmentPlan, KeptFragment};
use crate::context::{Context, Nesting};
use crate::subrequest::MAX_DEPTH;

/// Most fragments of one page, fragments of fragments included. nginx limits the subrequests of a
/// request to 200; pages of WordPress with ESI have some dozens.
const MOST_FRAGMENTS: usize = 256;

/// Most bytes of one page and its fragments. They are held until the last fragment has come.
/// Twice the longest page that the page cache keeps.
const MOST_BYTES: u64 = 16 << 20;

/// Most bytes of one page and its fragments in memory, as of the response to a slow client
/// (`docs/limits.md`). The other bytes wait in a temporary file.
const MOST_MEMORY: usize = 256 << 10;

/// Longest time for all fragments of one page. PHP gives up a script after as many seconds
/// (`max_execution_time`).
const LONGEST: Duration = Duration::from_secs(30);

/// Fragments of one page that are made at the same time: a page must not take all workers of a pool.
const AT_ONCE: usize = 4;

/// Limits of the work on one page, which its fragments share.
#[derive(Debug)]
pub(crate) struct Budget(Rc<Shares>);

#[derive(Debug)]
struct Shares {
    fragments: Cell<usize>,
    bytes: Cell<u64>,
    memory: Cell<usize>,
    disk: RefCell<DiskStore>,
    until: Instant,
}

/// A fragment is missing, and the page does not do without it.
#[derive(Debug)]
pub(super) struct Missing(String);

/// Requests the fragments of one page.
pub(super) struct Assembler<'a> {
    context: &'a Context<'a>,
    budget: &'a Budget,
    places: Semaphore,
    markup: &'a Markup,
    /// Fragments that are kept, by the numbers of their includes.
    kept_fragments: RefCell<Vec<Option<KeptFragment>>>,
    made: Cell<usize>,
    kept: Cell<usize>,
    left_out: Cell<usize>,
}

/// The parts of a page in their order.
pub(super) struct Parts(Vec<Part>);

enum Part {
    /// A range of the page.
    Text(Range<usize>),
    /// A part of the request, as HTML.
    Value(Vec<u8>),
    Fragment(Included),
    /// The parts of an `<esi:try>`.
    Several(Parts),
    Nothing,
}

/// The part that a node stands for, if it takes no request.
enum AtHand<'n> {
    Yes(Part),
    No(Wanted<'n>),
}

/// A node whose part must be requested.
enum Wanted<'n> {
    Fragment(&'n Include),
    Attempt(&'n Attempt),
}

/// A fragment in its place.
struct Included {
    terms: Rc<Terms>,
    /// In seconds.
    age: u64,
    segments: Vec<Segment>,
}

/// The response with an assembled page.
pub(super) struct Assembled {
    pub(super) head: ResponseHead,
    pub(super) segments: Vec<Segment>,
}

impl Budget {
    /// The budget of a page. A fragment shares the budget of its page.
    pub(super) fn of(context: &Context<'_>) -> Self {
        if let Some(Self(shares)) = context.nesting.budget {
            return Self(Rc::clone(shares));
        }
        Self(Rc::new(Shares {
            fragments: Cell::new(MOST_FRAGMENTS),
            bytes: Cell::new(MOST_BYTES),
            memory: Cell::new(MOST_MEMORY),
            disk: RefCell::default(),
            until: Instant::now() + LONGEST,
        }))
    }

    /// Takes a segment of a page or of a fragment. Bytes for which no memory is left go to disk.
    ///
    /// # Errors
    /// There are too many bytes, or they cannot be written.
    pub(super) fn take(&self, segment: Segment) -> Result<Segment, String> {
        self.take_bytes(segment.len())?;
        let Segment::Bytes(bytes) = segment else { return Ok(segment) };
        match self.0.memory.get().checked_sub(bytes.len()) {
            Some(left) => {
                self.0.memory.set(left);
                Ok(Segment::Bytes(bytes))
            }
            None => {
                let stored = self.0.disk.borrow_mut().store(&bytes);
                stored.map(Segment::File).map_err(|error| {
                    format!(
                        "the page and its fragments cannot be written to a temporary file: {error}"
                    )
                })
            }
        }
    }

    /// Takes bytes of a page or of a fragment.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn take_bytes(&self, bytes: u64) -> Result<(), String> {
        let left = self.0.bytes.get().checked_sub(bytes).ok_or_else(|| {
            format!("the page and its fragments have more than {MOST_BYTES} bytes")
        })?;
        self.0.bytes.set(left);
        Ok(())
    }

    fn take_fragment(&self) -> Result<(), String> {
        let left = self.0.fragments.get().checked_sub(1).ok_or_else(|| {
            format!("the page and its fragments include more than {MOST_FRAGMENTS} fragments")
        })?;
        self.0.fragments.set(left);
        Ok(())
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'a> Assembler<'a> {
    /// `kept`: the fragments that are kept, by the numbers of their includes.
    pub(super) fn new(
        context: &'a Context<'a>,
        budget: &'a Budget,
        markup: &'a Markup,
        kept: Vec<Option<KeptFragment>>,
    ) -> Self {
        // Fragments of fragments are made one after the other, so that there are at most `AT_ONCE`
        // requests in all.
        let at_once = if context.nesting.budget.is_some() { 1 } else { AT_ONCE };
        Self {
            context,
            budget,
            places: Semaphore::new(at_once),
            markup,
            kept_fragments: RefCell::new(kept),
            made: Cell::new(0),
            kept: Cell::new(0),
            left_out: Cell::new(0),
        }
    }

    /// Requests the fragments.
    ///
    /// # Errors
    /// A fragment is missing, and the page does not do without it.
    pub(super) async fn assemble(&self) -> Result<Parts, Missing> {
        self.parts(&self.markup.template.nodes).await
    }

    /// The parts that these nodes stand for: first those at hand, then the others.
    async fn parts(&self, nodes: &[Node]) -> Result<Parts, Missing> {
        let (mut parts, mut missing) = (Vec::with_capacity(nodes.len()), Vec::new());
        for node in nodes {
            parts.push(match self.at_hand(node)? {
                AtHand::Yes(part) => part,
                AtHand::No(request) => {
                    missing.push((parts.len(), request));
                    Part::Nothing
                }
            });
        }
        if !missing.is_empty() {
            self.request(missing, &mut parts).await?;
        }
        Ok(Parts(parts))
    }

    /// Requests parts and puts them in their places. The first `AT_ONCE` that are not there yet are
    /// under way.
    fn request<'n>(
        &'n self,
        missing: Vec<(usize, Wanted<'n>)>,
        parts: &'n mut [Part],
    ) -> Pin<Box<dyn Future<Output = Result<(), Missing>> + 'n>> {
        Box::pin(async move {
            let part = async |(place, wanted)| Ok((place, self.part(wanted).await?));
            let mut coming = stream::iter(missing).map(part).buffered(AT_ONCE);
            while let Some((place, part)) = coming.try_next().await? {
                parts[place] = part;
            }
            Ok(())
        })
    }

    /// The part that a node stands for, if it takes no request.
    fn at_hand<'n>(&self, node: &'n Node) -> Result<AtHand<'n>, Missing> {
        match node {
            Node::Text(range) => Ok(AtHand::Yes(Part::Text(range.clone()))),
            Node::Variable(variable) => {
                let value = variable.as_html(self.context.request);
                self.budget.take_bytes(value.len() as u64).map_err(Missing)?;
                Ok(AtHand::Yes(Part::Value(value)))
            }
            Node::Include(include) => {
                let kept =
                    self.kept_fragments.borrow_mut().get_mut(include.number).and_then(Option::take);
                let Some(fragment) = kept.filter(|fragment| self.admit(fragment)) else {
                    return Ok(AtHand::No(Wanted::Fragment(include)));
                };
                self.kept.set(self.kept.get() + 1);
                let KeptFragment { terms, age, body } = fragment;
                let segments = vec![body];
                Ok(AtHand::Yes(Part::Fragment(Included { terms, age, segments })))
            }
            Node::Try(attempt) => Ok(AtHand::No(Wanted::Attempt(attempt))),
        }
    }

    /// Takes a kept fragment from the budget. Without a rest in the budget its request will fail.
    fn admit(&self, fragment: &KeptFragment) -> bool {
        self.budget.take_fragment().is_ok() && self.budget.take_bytes(fragment.body.len()).is_ok()
    }

    /// Requests what a node stands for.
    async fn part(&self, wanted: Wanted<'_>) -> Result<Part, Missing> {
        match wanted {
            Wanted::Fragment(include) => self.include(include).await,
            Wanted::Attempt(Attempt { attempt, except }) => match self.parts(attempt).await {
                Ok(parts) => Ok(Part::Several(parts)),
                Err(Missing(_)) => self.parts(except).await.map(Part::Several),
            },
        }
    }

    async fn include(&self, include: &Include) -> Result<Part, Missing> {
        let Include { number, src, alt, on_error } = include;
        let number = src.fixed().map(|_| *number);
        let addresses = [Some((src, number)), alt.as_ref().map(|alt| (alt, None))];
        let mut why = String::new();
        for (address, number) in addresses.into_iter().flatten() {
            match self.fetch(address, number).await {
                Ok(fragment) => {
                    let count = if fragment.is_kept() { &self.kept } else { &self.made };
                    count.set(count.get() + 1);
                    return Ok(Part::Fragment(Included::of(fragment)));
                }
                Err(reason) => {
                    why = format!("the fragment {:?}: {reason}", address.source());
                    let request = self.context.request.shown();
                    tracing::warn!(request, "{why}");
                }
            }
        }
        match on_error {
            OnError::Continue => {
                self.left_out.set(self.left_out.get() + 1);
                Ok(Part::Nothing)
            }
            OnError::Fail => Err(Missing(why)),
        }
    }

    /// Requests a fragment, as the client would do it. `number`: the include whose fragment is the
    /// same for all requests for the page.
    async fn fetch(&self, address: &Text, number: Option<usize>) -> Result<Fragment, String> {
        let Context { services, site, request, nesting, .. } = *self.context;
        let Ok(_place) = self.places.acquire().await else { return Err("no place".to_owned()) };
        let uri = target(&address.address(request)?, request)?;
        if nesting.depth >= MAX_DEPTH {
            return Err(format!("fragments lie more than {MAX_DEPTH} deep in one another"));
        }
        self.budget.take_fragment()?;
        let mut request = request_for(request, &uri)?;
        let nesting = Nesting { depth: nesting.depth + 1, budget: Some(self.budget) };
        let mut sink = FragmentSink::new(self.budget);
        let begun = std::time::Instant::now();
        let answered = async {
            let planned = services.plan_fragment(site, &mut request, nesting).await;
            let answered = services.answer_fragment(&planned, &request, nesting, &mut sink).await;
            answered.map(|()| planned)
        };
        match timeout_at(self.budget.0.until, answered).await {
            Ok(Ok(planned)) => {
                if let Some(number) = number.filter(|number| self.markup.lacks_plan(*number)) {
                    let plan = FragmentPlan::of(services, &request, planned, begun);
                    self.markup.remember(number, plan);
                }
                sink.into_fragment()
            }
            Ok(Err(cut)) => Err(cut.why),
            Err(_) => Err(format!("the fragments of the page took more than {LONGEST:?}")),
        }
    }

    /// The page's parts, for `sendoff explain`.
    pub(super) fn explanation(&self, time: Duration) -> String {
        let (made, kept, left_out) = (self.made.get(), self.kept.get(), self.left_out.get());
        let mut text = format!(
            "ESI: made of {} fragments, {kept} kept, {made} made, in {:.1} ms",
            made + kept,
            time.as_secs_f64() * 1000.0
        );
        if left_out > 0 {
            text.push_str(&format!("; {left_out} are missing and left out"));
        }
        text
    }
}

impl Included {
    fn of(Fragment { head, body }: Fragment) -> Self {
        let (terms, age) = (Rc::new(Terms::of(&head)), stated_age(&head));
        Self { terms, age, segments: body.into_segments() }
    }
}

impl Parts {
    /// The response: the page's head, and the pieces of the page and of its fragments.
    pub(super) fn into_response(self, head: PageHead, body: Body) -> Assembled {
        let now = SystemTime::now();
        let mut merged = Merged::of(head, now);
        let (mut pieces, mut segments) = (body.into_pieces(), Vec::new());
        let mut rest = vec![self.0.into_iter()];
        while let Some(parts) = rest.last_mut() {
            match parts.next() {
                None => drop(rest.pop()),
                Some(Part::Text(range)) => pieces.cut(&range, &mut segments),
                Some(Part::Value(value)) => {
                    merged.shows_request();
                    segments.push(piece(value));
                }
                Some(Part::Fragment(fragment)) => {
                    merged.add(&fragment.terms, fragment.age, now);
                    segments.extend(fragment.segments);
                }
                Some(Part::Several(Self(parts))) => rest.push(parts.into_iter()),
                Some(Part::Nothing) => merged.lacks_fragment(),
            }
        }
        segments.retain(|segment| !segment.is_empty());
        let head = merged.into_head(segments.iter().map(Segment::len).sum());
        Assembled { head, segments }
    }
}
