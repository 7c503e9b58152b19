// Announces pauses of a Go service to the sidecar. Collections of the Go runtime stop the world for well below a
// millisecond and need no hook; what needs one is the rest: debug.FreeOSMemory, a heap dump, a large reload.
//
//	defer sidebeatPause("/run/sidebeat/hook.sock", 2*time.Second, "heap dump")()
//
// go run sidebeat_pause.go /run/sidebeat/hook.sock tries it once.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// sidebeatSay sends one line and gives the answer.
func sidebeatSay(path, line string) (string, error) {
	conn, err := net.DialTimeout("unix", path, 200*time.Millisecond)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(answer, "ok ") {
		err = fmt.Errorf("sidecar: %s", strings.TrimSpace(answer))
	}
	return strings.TrimSpace(answer), err
}

// sidebeatPause announces a pause of at most d and returns what ends it early. A sidecar that is away costs nothing: the
// work goes on unannounced.
func sidebeatPause(path string, d time.Duration, reason string) (resume func()) {
	if _, err := sidebeatSay(path, fmt.Sprintf("pause %dms %s", d.Milliseconds(), reason)); err != nil {
		return func() {}
	}
	return func() { _, _ = sidebeatSay(path, "resume") }
}

func main() {
	answer, err := sidebeatSay(os.Args[1], "pause 3s tried by hand")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(answer)
	defer sidebeatPause(os.Args[1], 3*time.Second, "free memory")()
	debug.FreeOSMemory()
}
