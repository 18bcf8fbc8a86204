"""Calls the application of grpc_server.py through a server: grpc_client.py ADDRESS [CERTIFICATE]."""
import queue
import sys
from concurrent import futures

import grpc

limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
if len(sys.argv) > 2:
    with open(sys.argv[2], "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    channel = grpc.secure_channel(sys.argv[1], credentials, options=limits)
else:
    channel = grpc.insecure_channel(sys.argv[1], options=limits)
unary = channel.unary_unary("/test.Echo/Unary")

response, call = unary.with_call(b"hello", metadata=(("x-asked", "1"),), timeout=20)
assert response == b"hello"
assert ("x-initial", "first") in [tuple(field) for field in call.initial_metadata()]
trailing = [tuple(field) for field in call.trailing_metadata()]
assert ("x-trailing-bin", b"\x00\xff") in trailing and ("x-asked", "1") in trailing, trailing

large = bytes(range(256)) * (4 << 12)
assert len(large) == 4 << 20 and unary(large, timeout=20) == large

numbers = list(channel.unary_stream("/test.Echo/ServerStream")(b"1000", timeout=20))
assert numbers == [b"%d" % number for number in range(1000)]

sent = (b"x" * 10_000 for _ in range(500))
assert channel.stream_unary("/test.Echo/ClientStream")(sent, timeout=20) == b"5000000"

messages = queue.Queue()
answers = channel.stream_stream("/test.Echo/Both")(iter(messages.get, None), timeout=20)
for text in [b"abc", b"", b"def" * 50_000]:
    messages.put(text)
    assert next(answers) == text[::-1]
messages.put(None)
assert list(answers) == [] and answers.code() == grpc.StatusCode.OK

try:
    channel.unary_unary("/test.Echo/Fail")(b"", timeout=20)
    raise AssertionError("no error")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
    assert error.details() == "not now: 100% gr\u00fc\u00df", error
    assert ("grpc-status-details-bin", b"details of it") in [tuple(field) for field in error.trailing_metadata()]

try:
    channel.unary_unary("/test.Echo/None")(b"", timeout=20)
    raise AssertionError("no error")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error

try:
    channel.unary_unary("/test.Echo/Sleep")(b"", timeout=0.3)
    raise AssertionError("no error")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
assert channel.unary_unary("/test.Echo/WasCancelled")(b"", timeout=20) == b"yes"

with futures.ThreadPoolExecutor(50) as pool:
    for number, answer in enumerate(pool.map(lambda n: unary(b"%d" % n, timeout=20), range(2000))):
        assert answer == b"%d" % number
print("all calls as expected")
