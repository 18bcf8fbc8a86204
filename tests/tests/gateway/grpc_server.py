"""A gRPC application that prints its port: echoes, streams, errors with details, cancelled calls."""
import sys
import threading
import time
from concurrent import futures

import grpc

cancelled = threading.Event()


def unary(request, context):
    context.send_initial_metadata((("x-initial", "first"),))
    context.set_trailing_metadata((("x-trailing-bin", b"\x00\xff"), ("x-asked", dict(context.invocation_metadata()).get("x-asked", "-"))))
    return request


def server_stream(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def client_stream(requests, context):
    return b"%d" % sum(len(request) for request in requests)


def both(requests, context):
    for request in requests:
        yield request[::-1]


def fail(request, context):
    context.set_trailing_metadata((("grpc-status-details-bin", b"details of it"),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now: 100% gr\u00fc\u00df")


def sleep(request, context):
    context.add_callback(lambda: cancelled.set() if not context.is_active() else None)
    while context.is_active():
        time.sleep(0.01)
    cancelled.set()
    return b""


def was_cancelled(request, context):
    return b"yes" if cancelled.wait(10) else b"no"


handlers = grpc.method_handlers_generic_handler("test.Echo", {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
    "ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
    "Both": grpc.stream_stream_rpc_method_handler(both),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "Sleep": grpc.unary_unary_rpc_method_handler(sleep),
    "WasCancelled": grpc.unary_unary_rpc_method_handler(was_cancelled),
})


def check(request, context):
    """grpc.health.v1.Health/Check: serves as a whole, and as test.Echo."""
    if request not in (b"", b"\x0a\x09test.Echo"):
        context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
    return b"\x08\x01"


health = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {
    "Check": grpc.unary_unary_rpc_method_handler(check),
})
limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
server = grpc.server(futures.ThreadPoolExecutor(64), options=limits)
server.add_generic_rpc_handlers((handlers, health))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
server.stop(0)
