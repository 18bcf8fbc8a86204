//! The conversation with an authority that ends with a certificate (RFC 8555 §7).

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeHandle,
    ChallengeType, Error, ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use sendoff_config::{AccountBinding, Acme};
use sendoff_tls::{Challenge, Credentials, Leaf, usable_pem};
use tokio::time::sleep;

use crate::answers::Answers;
use crate::client::Https;
use crate::dns::{self, TxtRecord};
use crate::ledger::Ledger;
use crate::now;
use crate::schedule::{Pending, Record, is_newer};
use crate::server::Server;
use crate::store::Store;
use crate::trouble::{FailureKind, Trouble, is};
use crate::wanted::{Method, WantedCertificate};

/// Polling of an order until the authority has decided. The authority's `Retry-After` takes
/// precedence.
const POLICY: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Further repetitions of a request whose nonce was refused (RFC 8555 §6.5), after the library has
/// given up.
const BAD_NONCES: usize = 10;

/// Time for other servers to learn of challenges; they check every second.
const OTHERS_LEARN: Duration = Duration::from_secs(3);

/// Repeats a request whose nonce is refused.
async fn again<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..BAD_NONCES {
        match ask().await {
            Err(error) if is(&error, "badNonce") => {}
            other => return other,
        }
    }
    ask().await
}

/// The parts that a conversation needs.
pub(crate) struct Conversation<'a, S> {
    pub(crate) acme: &'a Acme,
    pub(crate) ledger: &'a Ledger<'a>,
    pub(crate) answers: &'a Answers<S>,
    pub(crate) https: Https,
}

/// The account in the folder; `None` if there is none yet.
pub(crate) async fn known_account(store: &Store, https: &Https) -> Result<Option<Account>, Error> {
    let Some(stored) = store.account::<AccountCredentials>() else { return Ok(None) };
    let builder = Account::builder_with_http(Box::new(https.clone()));
    builder.from_credentials(stored).await.map(Some)
}

impl<S: Server> Conversation<'_, S> {
    fn trouble(&self, error: &Error) -> Trouble {
        let trouble = Trouble::with_authority(&self.acme.directory, error);
        Trouble { retry_after: self.https.retry_after(), ..trouble }
    }

    async fn account(&self) -> Result<Account, Trouble> {
        let known = known_account(self.ledger.store, &self.https).await;
        if let Some(account) = known.map_err(|error| self.trouble(&error))? {
            return Ok(account);
        }
        let contact = self.acme.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<_> = contact.as_deref().into_iter().collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let binding = self.acme.binding.as_ref().map(binding_key).transpose()?;
        let created = again(async || {
            let builder = Account::builder_with_http(Box::new(self.https.clone()));
            builder.create(&new, self.acme.directory.clone(), binding.as_ref()).await
        });
        let (account, credentials) = created.await.map_err(|error| self.trouble(&error))?;
        self.ledger.store_account(&credentials).await?;
        tracing::info!(directory = self.acme.directory, "an account was made");
        Ok(account)
    }

    /// Obtains a certificate and its key, in PEM. `have`: the certificate that it replaces. The
    /// record is stored before each step that must be known after a crash.
    pub(crate) async fn obtain(
        &self,
        wanted: &WantedCertificate,
        have: Option<&(Credentials, Leaf)>,
        record: &mut Record,
    ) -> Result<String, Trouble> {
        let mut account = self.account().await?;
        if let Some(pending) = record.pending.clone() {
            match self.resume(&account, wanted, &pending).await {
                Ok((pem, leaf)) if is_newer(&leaf, have.map(|(_, leaf)| leaf)) => return Ok(pem),
                Err(trouble) if trouble.kind == FailureKind::Unreachable => return Err(trouble),
                // An old order gives an old certificate, which would be due at once.
                Ok(_) | Err(_) => record.pending = None,
            }
        }
        let names: Vec<_> = wanted.names.iter().cloned().map(Identifier::Dns).collect();
        let replaced = have.and_then(|(credentials, _)| replaced(credentials));
        let mut ordered = order(&account, &names, replaced).await;
        if ordered.as_ref().is_err_and(|error| is(error, "accountDoesNotExist")) {
            let forgotten = self.ledger.store.forget_account();
            forgotten.map_err(|error| Trouble::here("the account cannot be replaced", error))?;
            tracing::warn!("the authority does not know the account any more, another one is made");
            account = self.account().await?;
            ordered = order(&account, &names, None).await;
        }
        let mut order = ordered.map_err(|error| self.trouble(&error))?;
        self.prove(&mut order, wanted, record).await?;
        let key = KeyPair::generate().map_err(|error| Trouble::here("a key", error))?;
        let key = key.serialize_pem();
        record.pending = Some(Pending { order: order.url().to_owned(), key: key.clone() });
        self.ledger.store_record(&wanted.file(), record).await?;
        self.finish(order, wanted, &key).await.map(|(pem, _)| pem)
    }

    /// Continues an order of an earlier process.
    async fn resume(
        &self,
        account: &Account,
        wanted: &WantedCertificate,
        Pending { order, key }: &Pending,
    ) -> Result<(String, Leaf), Trouble> {
        let found = again(async || account.order(order.clone()).await).await;
        let order = found.map_err(|error| self.trouble(&error))?;
        tracing::debug!(names = wanted.names.join(", "), "an earlier order goes on");
        self.finish(order, wanted, key).await
    }

    /// Proves that the operator controls all names.
    async fn prove(
        &self,
        order: &mut Order,
        wanted: &WantedCertificate,
        record: &mut Record,
    ) -> Result<(), Trouble> {
        let method = wanted.methods[record.method(wanted.methods.len())];
        let challenges = again(async || challenges(order, wanted, method).await).await;
        let challenges = challenges.map_err(|error| self.trouble(&error))?;
        if challenges.is_empty() {
            return self.await_ready(order, method).await;
        }
        record.validates(now());
        self.ledger.store_record(&wanted.file(), record).await?;
        let (mut records, mut answers) = (Vec::new(), Vec::new());
        for challenge in challenges {
            match challenge {
                Proof::Record(record) => records.push(record),
                Proof::Answer(answer) => answers.push(answer),
            }
        }
        if !answers.is_empty() {
            self.show(&answers).await?;
        }
        let Some(hook) = self.acme.dns.as_ref().filter(|_| !records.is_empty()) else {
            return self.await_check(order, wanted, method).await;
        };
        let proven = match dns::publish(hook, &records).await {
            Ok(()) => self.await_check(order, wanted, method).await,
            Err(trouble) => Err(trouble),
        };
        dns::withdraw(hook, &records).await;
        proven
    }

    /// Makes all servers answer the challenges.
    async fn show(&self, challenges: &[Challenge]) -> Result<(), Trouble> {
        self.ledger.store_challenges(challenges).await?;
        let answered = self.answers.refresh().await;
        answered.map_err(|why| Trouble::here("no name can be proven", why))?;
        if self.ledger.has_others() {
            sleep(OTHERS_LEARN).await;
        }
        Ok(())
    }

    /// Has the authority check the names that are not proven yet.
    async fn await_check(
        &self,
        order: &mut Order,
        wanted: &WantedCertificate,
        method: Method,
    ) -> Result<(), Trouble> {
        tracing::debug!(names = wanted.names.join(", "), ?method, "the authority checks names");
        let ready = again(async || set_ready(order, method).await).await;
        ready.map_err(|error| self.trouble(&error))?;
        self.await_ready(order, method).await
    }

    /// Waits until the authority calls the order ready.
    async fn await_ready(&self, order: &mut Order, method: Method) -> Result<(), Trouble> {
        let status = again(async || order.poll_ready(&POLICY).await).await;
        if let Ok(OrderStatus::Ready) = status {
            return Ok(());
        }
        let said = again(async || complaints(order, method).await).await.unwrap_or_default();
        if !said.is_empty() {
            return Err(Trouble::validation(&said, self.https.retry_after()));
        }
        Err(match status {
            Err(error) => self.trouble(&error),
            Ok(_) => Trouble {
                kind: FailureKind::Validation,
                says: "the authority calls the order invalid and does not say why".to_owned(),
                retry_after: None,
            },
        })
    }

    /// Requests the certificate of an order whose names are proven, and downloads it.
    async fn finish(
        &self,
        mut order: Order,
        wanted: &WantedCertificate,
        key: &str,
    ) -> Result<(String, Leaf), Trouble> {
        let wrong = |error: rcgen::Error| Trouble::here("no request can be signed", error);
        if matches!(order.state().status, OrderStatus::Ready) {
            let key = KeyPair::from_pem(key).map_err(wrong)?;
            let mut params = CertificateParams::new(wanted.names.clone()).map_err(wrong)?;
            params.distinguished_name = DistinguishedName::new();
            let request = params.serialize_request(&key).map_err(wrong)?;
            let sent = again(async || order.finalize_csr(request.der()).await).await;
            sent.map_err(|error| self.trouble(&error))?;
        }
        let chain = again(async || order.poll_certificate(&POLICY).await).await;
        let chain = chain.map_err(|error| self.trouble(&error))?;
        let pem = format!("{}\n{key}", chain.trim_end());
        let refused = |says| Trouble { kind: FailureKind::Refused, says, retry_after: None };
        let (_, leaf) = usable_pem(pem.clone())
            .map_err(|why| refused(format!("the authority has sent something else: {why}")))?;
        // An expired certificate would be due at once, as would the next one.
        if u64::try_from(leaf.ends).unwrap_or(0) <= now() {
            return Err(refused(
                "the certificate that the authority has sent is out of date".to_owned(),
            ));
        }
        match wanted.names.iter().find(|name| !leaf.covers(name)) {
            None => Ok((pem, leaf)),
            Some(name) => Err(refused(format!("the authority has left {name} out"))),
        }
    }
}

/// Orders a certificate. If the authority rejects the name of the replaced certificate (RFC 9773
/// §5), the order is repeated without it.
async fn order(
    account: &Account,
    names: &[Identifier],
    replaced: Option<CertificateIdentifier<'static>>,
) -> Result<Order, Error> {
    if let Some(replaced) = replaced {
        let new = NewOrder::new(names).replaces(replaced);
        match again(async || account.new_order(&new).await).await {
            Err(error) if is(&error, "rateLimited") || is(&error, "accountDoesNotExist") => {
                return Err(error);
            }
            Err(error) => tracing::debug!(%error, "the certificate is ordered as a new one"),
            ordered => return ordered,
        }
    }
    let new = NewOrder::new(names);
    again(async || account.new_order(&new).await).await
}

/// The authority's identifier of a certificate (RFC 9773 §4.1).
pub(crate) fn replaced(credentials: &Credentials) -> Option<CertificateIdentifier<'static>> {
    let chain = credentials.certificates().ok()?;
    CertificateIdentifier::try_from(chain.first()?).ok().map(CertificateIdentifier::into_owned)
}

fn kind(method: Method) -> ChallengeType {
    match method {
        Method::Http01 => ChallengeType::Http01,
        Method::TlsAlpn01 => ChallengeType::TlsAlpn01,
        Method::Dns01 => ChallengeType::Dns01,
    }
}

/// The proof of a name.
enum Proof {
    /// Servers answer the authority's question.
    Answer(Challenge),
    /// The operator's program publishes a record.
    Record(TxtRecord),
}

impl Proof {
    fn new(method: Method, name: String, challenge: &ChallengeHandle<'_>) -> Self {
        let authorization = challenge.key_authorization();
        match method {
            Method::Http01 => Self::Answer(Challenge::Http {
                token: challenge.token.clone(),
                answer: authorization.as_str().to_owned(),
            }),
            Method::TlsAlpn01 => Self::Answer(Challenge::Tls {
                host: name,
                digest: authorization.digest().as_ref().to_vec(),
            }),
            Method::Dns01 => Self::Record(TxtRecord::new(&name, &authorization)),
        }
    }
}

/// The key that binds a new account to the operator's account elsewhere.
fn binding_key(AccountBinding { id, key }: &AccountBinding) -> Result<ExternalAccountKey, Trouble> {
    let trouble = |error: &dyn std::fmt::Display| Trouble::here(&key.display().to_string(), error);
    let text = std::fs::read_to_string(key).map_err(|error| trouble(&error))?;
    let bytes = base64_key(text.trim()).ok_or_else(|| trouble(&"this is no key in base64"))?;
    Ok(ExternalAccountKey::new(id.clone(), &bytes))
}

/// Authorities write keys in the alphabet for URLs without padding (RFC 8555 §7.3.4), some otherwise.
fn base64_key(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let bytes = URL_SAFE_NO_PAD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

/// The proofs of names that are not proven yet.
async fn challenges(
    order: &mut Order,
    wanted: &WantedCertificate,
    method: Method,
) -> Result<Vec<Proof>, Error> {
    let mut all = Vec::new();
    let mut names = order.authorizations();
    while let Some(name) = names.next().await {
        let mut name = name?;
        if name.status == AuthorizationStatus::Valid {
            continue;
        }
        let host = name.identifier().to_string();
        // Programs of the operator get the name.
        if !wanted.names.contains(&host) {
            return Err(Error::Str("the names that were ordered"));
        }
        let Some(challenge) = name.challenge(kind(method)) else {
            return Err(Error::Str("a challenge that this server can answer"));
        };
        all.push(Proof::new(method, host, &challenge));
    }
    Ok(all)
}

/// Tells the authority to check the names. A repeated call skips names that are already being
/// checked.
async fn set_ready(order: &mut Order, method: Method) -> Result<(), Error> {
    let mut names = order.authorizations();
    while let Some(name) = names.next().await {
        let mut name = name?;
        if name.status != AuthorizationStatus::Pending {
            continue;
        }
        if let Some(mut challenge) = name.challenge(kind(method)) {
            again(async || challenge.set_ready().await).await?;
        }
    }
    Ok(())
}

/// The authority's errors about names.
async fn complaints(order: &mut Order, method: Method) -> Result<Vec<String>, Error> {
    let mut said = Vec::new();
    let mut names = order.authorizations();
    while let Some(name) = names.next().await {
        let mut name = name?;
        again(async || name.refresh().await.map(drop)).await?;
        let host = name.identifier().to_string();
        let errors = name.challenges.iter().filter(|one| one.r#type == kind(method));
        for problem in errors.filter_map(|challenge| challenge.error.as_ref()) {
            said.push(format!("{host}: {}", Trouble::of_check(problem, method).says));
        }
    }
    Ok(said)
}
