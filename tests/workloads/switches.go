// switches SECONDS: goroutines that begin, end and wait, memory that is collected, and signals: Go's runtime does all that on other
// stacks than those of its callers.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

var sink int
var kept [][]byte

//go:noinline
func burns(n int) int {
	s := 0
	for i := 0; i < n*1000; i++ {
		s += i ^ n
	}
	return s
}

//go:noinline
func begins() {
	done := make(chan int)
	for i := 0; i < 50; i++ {
		go func(n int) { done <- n }(i)
	}
	for i := 0; i < 50; i++ {
		sink += <-done
	}
}

//go:noinline
func allocates() {
	kept = kept[:0]
	for i := 0; i < 200; i++ {
		kept = append(kept, make([]byte, 4096), []byte(fmt.Sprint(i)))
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(time.Duration(seconds * 1e9))
	for time.Now().Before(end) {
		begins()
		allocates()
		sink += burns(20)
		for i := 0; i < 100; i++ {
			syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		}
		select {
		case <-c:
		default:
		}
	}
}
