//! Debian's Tomcat 10 in a folder of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::child::dies_with_us;

const HOME: &str = "/usr/share/tomcat10";

/// Fills `base` (`CATALINA_BASE`) with an empty web application, `webapps/ROOT`, and these
/// `<Connector>` elements. Returns the command that runs Tomcat in a JVM with these options. Tomcat
/// prints "Server startup in" when it is ready.
pub fn tomcat(base: &Path, connectors: &str, options: &[&str]) -> Command {
    for name in ["conf", "logs", "work", "temp", "lib", "webapps/ROOT/WEB-INF"] {
        fs::create_dir_all(base.join(name)).unwrap();
    }
    fs::copy(Path::new(HOME).join("etc/web.xml"), base.join("conf/web.xml")).unwrap();
    let server = format!(
        r#"<Server port="-1"><Service name="Catalina">
        {connectors}
        <Engine name="Catalina" defaultHost="localhost"><Host name="localhost" appBase="webapps" autoDeploy="false"/>
        </Engine></Service></Server>"#
    );
    fs::write(base.join("conf/server.xml"), server).unwrap();
    let mut command = dies_with_us(Path::new("java"), "KILL");
    command
        .args(options)
        .args(["-cp", &format!("{HOME}/bin/bootstrap.jar:{HOME}/bin/tomcat-juli.jar")])
        .arg(format!("-Dcatalina.home={HOME}"))
        .arg(format!("-Dcatalina.base={}", base.display()))
        .arg(format!("-Djava.io.tmpdir={}", base.join("temp").display()))
        .args(["org.apache.catalina.startup.Bootstrap", "start"])
        .current_dir(base);
    command
}
