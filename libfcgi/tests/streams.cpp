// The streams of libfcgi++ (fcgio.h). The query says what to do.
#include <fcgio.h>

#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>

// Words and lines of the body, by formatted and unformatted reads.
static void echo(std::istream &in, std::ostream &out)
{
	std::string line;

	for (int number = 1; std::getline(in, line); number++) {
		out << std::setw(4) << number << ' ' << line << '\n';
	}
	out << "eof " << in.eof() << " bad " << in.bad() << std::endl;
}

// Blocks, with a character put back at every boundary.
static void blocks(std::istream &in, std::ostream &out)
{
	char block[1000];

	while (in.read(block, sizeof block), in.gcount() > 0) {
		out.write(block, in.gcount());
		if (in.get(block[0])) {
			in.putback(block[0]);
		}
	}
}

static void numbers(std::istream &, std::ostream &out)
{
	for (int i = 0; i < 100000; i++) {
		out << i << (i % 10 == 9 ? '\n' : ' ');
		if (i % 5000 == 0) {
			out.flush();
		}
	}
	out << std::hex << std::showbase << 255 << ' ' << std::scientific << 1.5 << '\n';
}

int main()
{
	FCGX_Request request;

	FCGX_Init();
	FCGX_InitRequest(&request, 0, 0);
	while (FCGX_Accept_r(&request) == 0) {
		fcgi_streambuf in_buffer(request.in), out_buffer(request.out), err_buffer(request.err);
		std::istream in(&in_buffer);
		std::ostream out(&out_buffer), err(&err_buffer);
		const char *given = FCGX_GetParam("QUERY_STRING", request.envp);
		const std::string query = given ? given : "";

		out << "Content-Type: text/plain\r\n\r\n";
		if (query == "echo") {
			echo(in, out);
		} else if (query == "blocks") {
			blocks(in, out);
		} else if (query == "numbers") {
			numbers(in, out);
		} else if (query == "errors") {
			err << "to the log " << 1 << std::endl;
			out << "to the client " << 2;
			err << "and more" << std::flush;
		} else if (query == "standard") {
			// As programs do that were written for CGI.
			std::streambuf *const old_in = std::cin.rdbuf(&in_buffer);
			std::streambuf *const old_out = std::cout.rdbuf(&out_buffer);
			std::cin.clear();
			std::cout << std::cin.rdbuf();
			std::cout.clear();
			std::cout << "end" << std::endl;
			std::cin.rdbuf(old_in);
			std::cout.rdbuf(old_out);
		}
	}
	return 0;
}
