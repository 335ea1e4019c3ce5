package admin_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/admin"
	"example.com/payonce/testkit/logs"
)

const token = "only-for-tests-0123456789abcdef"

func TestToken(t *testing.T) {
	t.Parallel()

	t.Run("LimitsWrongTriesPerAddress", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := admin.NewToken(token)
			for range 10 {
				require.ErrorIs(t, k.Admits("192.0.2.1:1000", token+"x"), admin.ErrWrongToken)
			}
			require.ErrorIs(t, k.Admits("192.0.2.1:2000", "guess"), admin.ErrTooManyTries, "another port is no other address")
			require.ErrorIs(t, k.Admits("[::ffff:192.0.2.1]:1", "guess"), admin.ErrTooManyTries, "nor is another spelling")
			require.ErrorIs(t, k.Admits("192.0.2.1:1000", token), admin.ErrTooManyTries,
				"a guess that is right would be recognised")
			require.NoError(t, k.Admits("192.0.2.2:1000", token), "other addresses are not limited")
			wait(admin.RetryAfter)
			require.NoError(t, k.Admits("192.0.2.1:1000", token))
			require.ErrorIs(t, k.Admits("192.0.2.1:1000", "guess"), admin.ErrWrongToken, "one more in this time")
			require.ErrorIs(t, k.Admits("192.0.2.1:1000", "guess"), admin.ErrTooManyTries)
		})
	})

	t.Run("RightTokensAreNotCounted", func(t *testing.T) {
		t.Parallel()
		k := admin.NewToken(token)
		for range 100 {
			require.NoError(t, k.Admits("192.0.2.1:1000", token))
		}
	})

	t.Run("NoTokenIsNoTry", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := admin.NewToken(token)
			for range 100 {
				require.ErrorIs(t, k.Admits("192.0.2.1:1000", ""), admin.ErrNoToken)
			}
			require.NoError(t, k.Admits("192.0.2.1:1000", token))
			for range 10 {
				require.ErrorIs(t, k.Admits("192.0.2.1:1000", "guess"), admin.ErrWrongToken)
			}
			require.ErrorIs(t, k.Admits("192.0.2.1:1000", ""), admin.ErrNoToken, "and it is told so while the limit lasts")
			require.ErrorIs(t, k.Admits("192.0.2.1:1000", token), admin.ErrTooManyTries)
		})
	})

	t.Run("LinesAboutWrongTokensAreSampled", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var out logs.Buffer
			k := admin.NewToken(token)
			for range 300 {
				k.LogWrong(out.Logger(slog.LevelInfo), "profiles", "192.0.2.1:1000")
			}
			require.Equal(t, 100, strings.Count(out.Take(), `level=WARN msg="wrong admin token" at=profiles remote=192.0.2.1:1000`))
			wait(time.Minute)
			require.Contains(t, out.Take(), `msg="log lines left out" message="wrong admin token" lines=200`)
			wait(time.Minute)
			require.Empty(t, out.Take(), "it is said once")
		})
	})

	t.Run("GuessesAtTheSameTimeShareTheLimit", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := admin.NewToken(token)
			var compared atomic.Int32
			var guesses sync.WaitGroup
			for range 200 {
				guesses.Go(func() {
					if k.Admits("192.0.2.1:1000", "guess") == admin.ErrWrongToken { //nolint:errorlint // it is not wrapped
						compared.Add(1)
					}
				})
			}
			guesses.Wait()
			require.EqualValues(t, 10, compared.Load())
		})
	})

	t.Run("ANetworkOfIPv6IsOneAddress", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := admin.NewToken(token)
			for i := range 10 {
				require.ErrorIs(t, k.Admits(fmt.Sprintf("[2001:db8:1:2::%x]:1", i), "guess"), admin.ErrWrongToken)
			}
			require.ErrorIs(t, k.Admits("[2001:db8:1:2:ffff::1]:1", "guess"), admin.ErrTooManyTries)
			require.ErrorIs(t, k.Admits("[2001:db8:1:3::1]:1", "guess"), admin.ErrWrongToken)
		})
	})

	t.Run("ManyAddressesTakeBoundedMemory", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := admin.NewToken(token)
			refused := 0
			for i := range 2000 {
				if k.Admits(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), "guess") == admin.ErrTooManyTries { //nolint:errorlint // it is not wrapped
					refused++
				}
			}
			require.Equal(t, 990, refused, "those that are not told apart have ten tries together")
			wait(admin.RetryAfter)
			require.ErrorIs(t, k.Admits("10.1.0.1:1", "guess"), admin.ErrWrongToken, "those that waited made room")
		})
	})

	t.Run("WithoutATokenNothingIsAdmitted", func(t *testing.T) {
		t.Parallel()
		k := admin.NewToken("")
		require.False(t, k.Configured())
		require.ErrorIs(t, k.Admits("127.0.0.1:1", ""), admin.ErrNoToken)
		require.ErrorIs(t, k.Admits("127.0.0.1:1", "guess"), admin.ErrWrongToken)
		require.Nil(t, k.Derive("session"))
	})
}
