// A relay in Go, with the faults that such programs have.
//
// relay leak|ok SEED FAULT
package main

import (
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"time"
)

var (
	leaks    bool
	sessions = map[int][]byte{}
	heads    [][]byte
)

func body() []byte {
	page := make([]byte, 3000+rand.Intn(6000))
	for i := range page {
		page[i] = 'b'
	}
	return page
}

// Each request starts a goroutine that waits for an answer which never comes.
func goroutines(count int) {
	answer := make(chan []byte)
	page := body()
	go func() {
		<-answer
		runtime.KeepAlive(page)
	}()
	if !leaks {
		answer <- nil
	}
}

// Sessions of clients that have gone stay in a map.
func table(count int) {
	sessions[count] = body()
	if !leaks {
		delete(sessions, count)
	}
}

// The first bytes of each page are kept, and with them the whole page.
func slices(count int) {
	page := body()
	head := page[:16]
	if !leaks {
		head = append([]byte(nil), head...)
	}
	heads = append(heads, head)
}

// Not a leak: garbage, collected from time to time.
func garbage(count int) {
	for i := 0; i < 20; i++ {
		body()
	}
}

func main() {
	leaks = os.Args[1] == "leak"
	seed, _ := strconv.Atoi(os.Args[2])
	rand.Seed(int64(seed))
	handle := map[string]func(int){"goroutines": goroutines, "table": table, "slices": slices, "garbage": garbage}[os.Args[3]]
	// Past the first collections, which start small.
	for i := 0; i < 10000; i++ {
		body()
	}
	for count := 1; ; count++ {
		handle(count)
		if count == 150 {
			fmt.Println("serving")
		}
		time.Sleep(time.Duration(15+rand.Intn(10)) * time.Millisecond)
	}
}
