// SPDX-License-Identifier: Apache-2.0 OR MIT

// A service that spreads each request over several goroutines, as those do that ask several backends or shards.
// It listens at 127.0.0.1 at the port of its first argument; GET /work does one request's work, as much as the other
// arguments say. How many of its goroutines run at a time is the runtime's choice: GOMAXPROCS.
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
)

var (
	// Steps of a request, one after the other: ask, merge, ask for the details, ...
	steps = 4
	// Goroutines of a step.
	parts = 16
	// Rounds of sha256 of each, some 1.5 microseconds of CPU time.
	rounds = 24
)

func part(number int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(number)))
	for i := 0; i < rounds; i++ {
		sum = sha256.Sum256(sum[:])
	}
	return hex.EncodeToString(sum[:])
}

func work(w http.ResponseWriter, _ *http.Request) {
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
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(sums)
}

func main() {
	if len(os.Args) != 2 && len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: fanout PORT [STEPS PARTS ROUNDS]")
		os.Exit(2)
	}
	for i, argument := range os.Args[2:] {
		number, err := strconv.Atoi(argument)
		if err != nil || number < 1 {
			fmt.Fprintf(os.Stderr, "%q is no number of at least 1\n", argument)
			os.Exit(2)
		}
		*[]*int{&steps, &parts, &rounds}[i] = number
	}
	http.HandleFunc("/work", work)
	err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil)
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
