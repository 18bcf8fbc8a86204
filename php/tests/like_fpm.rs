//! The same requests to a worker and to php-fpm: the same bytes come back.

mod common;

use common::fpm::Fpm;
use common::link::{Request, Response};
use common::master::Master;
use common::script;

#[test]
fn hello() {
    let fpm = Fpm::start(&[]);
    let master = Master::start(&[]);
    let mut worker = master.worker();
    let request = Request::new(&script("hello.php"));
    let ours = worker.link().ask(&request);
    assert_eq!(ours.body(), "Hello, world\n");
    assert_eq!(ours, fpm.ask(&request));
}
