// A FastCGI application on Go's net/http/fcgi, which takes any number of concurrent requests on each
// connection.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

// A connection that notes the round in which bytes were last read from it.
type connection struct {
	net.Conn
	round atomic.Int64
}

func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.round.Store(round.Load())
	}
	return n, err
}

func (c *connection) Close() error {
	connections.Delete(c)
	return c.Conn.Close()
}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	accepted.Add(1)
	c := &connection{Conn: conn}
	connections.Store(c, true)
	return c, nil
}

var (
	round       atomic.Int64
	accepted    atomic.Int64
	connections sync.Map
	mutex       sync.Mutex
	changed     = sync.NewCond(&mutex)
	gathered    = map[string]int{}
	released    = map[string]bool{}
	stuck       = make(chan bool)
)

func used() int {
	n := 0
	connections.Range(func(c, _ any) bool {
		if c.(*connection).round.Load() == round.Load() {
			n++
		}
		return true
	})
	return n
}

func number(r *http.Request, name string) int {
	n, _ := strconv.Atoi(r.FormValue(name))
	return n
}

// Waits until the condition is true.
func await(condition func() bool) {
	for !condition() {
		changed.Wait()
	}
}

func main() {
	// A new round begins.
	http.HandleFunc("/app/round", func(w http.ResponseWriter, r *http.Request) {
		round.Add(1)
		fmt.Fprint(w, "round")
	})
	// Waits for n requests with this name, and answers with the number of connections that they came
	// over.
	http.HandleFunc("/app/gather", func(w http.ResponseWriter, r *http.Request) {
		name, n := r.FormValue("name"), number(r, "n")
		mutex.Lock()
		gathered[name]++
		changed.Broadcast()
		await(func() bool { return gathered[name] >= n })
		mutex.Unlock()
		fmt.Fprintf(w, "%s %d", r.FormValue("id"), used())
	})
	// Answers when the name is released, with the result of reading the body.
	http.HandleFunc("/app/hold", func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		mutex.Lock()
		gathered[name]++
		changed.Broadcast()
		await(func() bool { return released[name] })
		mutex.Unlock()
		n, err := io.Copy(io.Discard, r.Body)
		mutex.Lock()
		gathered[name+"-done"]++
		changed.Broadcast()
		mutex.Unlock()
		fmt.Fprintf(w, "held %d %v", n, err)
	})
	http.HandleFunc("/app/release", func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		released[r.FormValue("name")] = true
		changed.Broadcast()
		mutex.Unlock()
		fmt.Fprint(w, "released")
	})
	// The number of connections accepted so far.
	http.HandleFunc("/app/accepted", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, accepted.Load())
	})
	http.HandleFunc("/app/hello", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s", r.URL.RawQuery)
	})
	http.HandleFunc("/app/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		io.Copy(w, r.Body)
	})
	// Answers without reading the body.
	http.HandleFunc("/app/early", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "early")
	})
	// Sends n bytes in a pattern that the client knows.
	http.HandleFunc("/app/bytes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		if r.FormValue("unbuffered") != "" {
			w.Header().Set("X-Accel-Buffering", "no")
		}
		n, at := number(r, "n"), 0
		piece := make([]byte, 60000)
		for at < n {
			part := min(n-at, len(piece))
			for i := range piece[:part] {
				piece[i] = byte((at + i) >> 3)
			}
			if _, err := w.Write(piece[:part]); err != nil {
				return
			}
			at += part
		}
	})
	http.HandleFunc("/app/file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Sendfile", r.FormValue("name"))
	})
	// Never answers.
	http.HandleFunc("/app/silent", func(w http.ResponseWriter, r *http.Request) { <-stuck })
	l, err := net.FileListener(os.Stdin)
	if err != nil {
		panic(err)
	}
	panic(fcgi.Serve(listener{l}, nil))
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}
