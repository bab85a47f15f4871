// SPDX-License-Identifier: Apache-2.0 OR MIT

// A service that spreads each request over several goroutines, as those do that ask several backends or shards.
// It listens at 127.0.0.1 at the port of its first argument; GET /work does one request's work. With `drive RATE` it does
// the work of RATE requests a second without being asked, and with `busy` it computes all the time in a single goroutine:
// such a program needs no client, so an experiment can start it. How many of its goroutines run at a time is the runtime's
// choice: GOMAXPROCS.
//
// Threads are woken for goroutines only as long as some are idle. So that 96 of them cost something however long
// requests queue, a request has few goroutines at a time, which hand over often.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	// Steps of a request, one after the other: ask, merge, ask for the details, ...
	steps = 800
	// Goroutines of a step. Each computes so little that most of the CPU time is for handing over: with 96 threads the
	// same requests take about twice the CPU time, so a limit between the two has room on either side.
	parts = 4
	// Requests under way at a time, where there is no client that limits them.
	most = 512
)

func part(number int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(number)))
	return hex.EncodeToString(sum[:])
}

func request() []string {
	sums := make([]string, parts)
	for step := 0; step < steps; step++ {
		var done sync.WaitGroup
		for i := range sums {
			done.Add(1)
			go func(i int) {
				defer done.Done()
				sums[i] = part(i)
			}(i)
		}
		done.Wait()
	}
	return sums
}

func work(w http.ResponseWriter, _ *http.Request) {
	sums := request()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(sums)
}

// Does the work of so many requests a second, of which at most `most` are under way.
func drive(rate int) {
	slots := make(chan struct{}, most)
	begun := time.Now()
	for asked := 0; ; asked++ {
		// Not by a ticker: it would drop what comes due while the program is throttled, which clients do not.
		time.Sleep(time.Until(begun.Add(time.Duration(asked) * time.Second / time.Duration(rate))))
		select {
		case slots <- struct{}{}:
			go func() {
				request()
				<-slots
			}()
		default:
		}
	}
}

// Computes all the time in one goroutine, and leaves no garbage: its collection would run in as many threads as may run.
func busy() {
	var sum [sha256.Size]byte
	for {
		sum = sha256.Sum256(sum[:])
	}
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "drive" {
		if rate, err := strconv.Atoi(os.Args[2]); err == nil && rate > 0 {
			drive(rate)
		}
	}
	if len(os.Args) == 2 && os.Args[1] == "busy" {
		busy()
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fanout PORT | drive RATE | busy")
		os.Exit(2)
	}
	http.HandleFunc("/work", work)
	err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil)
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
