package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Keys is the file of the keys that records are signed with: a YAML list of
// KeyEntry. It is safe for concurrent use; a lookup takes no lock.
type Keys struct {
	path  string
	table atomic.Pointer[keyTable]
	mu    sync.Mutex // one reading at a time
}

// keyTable is one reading of the file; it is immutable.
type keyTable struct {
	content [sha256.Size]byte // of the file's text
	byKid   map[string]*verifyingKey
}

// OpenKeys reads the file at path. A *KeysFileError names what is wrong with
// its text.
func OpenKeys(path string) (*Keys, error) {
	if path == "" {
		return nil, errors.New("read the keys file: no file is named")
	}
	k := &Keys{path: path}
	k.table.Store(&keyTable{})
	if _, err := k.Reload(); err != nil {
		return nil, err
	}
	return k, nil
}

// Len is how many keys there are.
func (k *Keys) Len() int { return len(k.table.Load().byKid) }

func (k *Keys) find(kid string) *verifyingKey { return k.table.Load().byKid[kid] }

// Reload reads the file again and says whether it says anything else. When it
// cannot be read, or is not well-formed, what was read last stays.
func (k *Keys) Reload() (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := readKeys(k.path)
	if err != nil {
		return false, fmt.Errorf("read the keys file: %w", err)
	}
	content := sha256.Sum256(text)
	if content == k.table.Load().content {
		return false, nil
	}
	keys, err := parseKeys(k.path, text)
	if err != nil {
		return false, err
	}
	k.table.Store(&keyTable{content, keys})
	return true, nil
}

func readKeys(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxKeysFile+1))
}

// watch reads the file again every interval until ctx ends, and calls then
// after a reading that changed something or failed; a file that stays bad is
// reported once. It reads the whole file, which is small, and so follows one
// that is replaced in whatever way.
func (k *Keys) watch(ctx context.Context, interval time.Duration, then func(changed bool, err error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	reported := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := k.Reload()
		message := ""
		if err != nil {
			message = err.Error()
		}
		if changed || message != "" && message != reported {
			then(changed, err)
		}
		reported = message
	}
}
