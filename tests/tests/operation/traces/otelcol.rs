//! The collector of the OpenTelemetry project, which understands the spans.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use sendoff_tests::{Collector, LIMIT, Request, Site, dies_with_us, repository, wait};

use super::{SHOW, TRACE, serve, traceparent};

#[test]
#[ignore = "heavy: builds a collector of OpenTelemetry, once"]
fn the_collector_of_opentelemetry_understands_the_spans() {
    let mut tool = Command::new(repository::root().join("tools/otelcol"));
    let built = tool.stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "tools/otelcol");
    let program = String::from_utf8(built.stdout).unwrap();
    let site = Site::with("a.php", SHOW);
    let (socket, config) = (site.outside("otel.sock"), site.outside("otel.yaml"));
    let receiver = format!("http: {{ endpoint: '{}', transport: unix }}", socket.display());
    let text = format!(
        "receivers: {{ otlp: {{ protocols: {{ {receiver} }} }} }}\n\
         exporters: {{ debug: {{ verbosity: detailed }} }}\n\
         service:\n  telemetry: {{ metrics: {{ level: none }} }}\n  \
         pipelines: {{ traces: {{ receivers: [otlp], exporters: [debug] }} }}\n"
    );
    site.write_at(config.clone(), text);
    let log = site.outside("otel.log");
    let mut collector = dies_with_us(program.trim().as_ref(), "KILL");
    collector.arg("--config").arg(&config);
    collector.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut collector = collector.spawn().unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    assert!(wait::until(LIMIT, || said().contains("Everything is ready")), "{}", said());
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let server = serve(&site, &Collector::url_of(&socket), "", "");
    let asked = Request::get("/a.php").header("traceparent", &traceparent());
    server.ask(&asked.header("tracestate", "v=1")).expect(200);
    let delivered = || said().contains("Name           : delivery");
    assert!(wait::until(LIMIT, delivered), "{}", said());
    let said = said();
    for line in [
        "-> service.name: Str(sendoff)\n",
        &format!("Trace ID       : {TRACE}\n    Parent ID      : 00f067aa0ba902b7\n"),
        "Kind           : Server\n    TraceState     : v=1\n",
        "Name           : worker\n    Kind           : Client\n",
        "-> http.response.status_code: Int(200)\n",
        "-> sendoff.pool: Str(www)\n",
    ] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
    collector.kill().unwrap();
    collector.wait().unwrap();
}
