package dsynctest

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// scripts returns scripts that test the effects of edits on the holders and the queue of a key. A script is a state,
// followed by edits, each with the state afterwards. This is the notation:
//
//	a2 b | c d3           a and b hold and c and d wait, in this order; a has the weight 2, and d 3
//	A b/4 c:7 d~          A is of another session; b has the limit 4, c the tick 7, and d yields
//	e=once                e is of the kind once
//	.                     the same state as before
//	leave a; keep a       a Release, and one with Keep
//	keep a sooner         a Release with a shorter Keep
//	leave a by id         a Release that has only the key and the id of a
//	leave a to c          a Release with the successor c; with Keep, too
//	seal a 7              a Release that seals up to tick 7
//	join e; try e         an Acquire that waits, and one that doesn't
//	join e first late     an Acquire at the head of the queue, after its NotAfter; for try, too
//	expire A              A's session expires
//	join e naming         an Acquire that names the session of A as expired; for try, too
//	join e/4 over         an Acquire whose kind and limit the free key takes over
//	mismatch e/4          an Acquire and a try, both refused with a MismatchError
//	e for a               a Release of a with an Acquire of e
//	e for a late          the same, after the NotAfter of the Acquire
//	wait                  no edit; the store's clock goes on
//	resize 5; publish a   a Resize to 5, and a Publish by a
//	resize 5 from 3       a Resize from another limit than the key has
//
// Two slashes begin another script, which runs on another key. The states determine what each edit must return:
// whether a Release found its claim, the error, the notices, and the position of a claim that joins.
func scripts() []scriptRow {
	return []scriptRow{
		{name: "Acquire/HolderMayRepeat", text: "a |; join a; a |; join a; a |; join a; a |"},
		{name: "Acquire/WaiterMayRepeat", text: "a | b c; join b; a | b c; join b; a | b c; join b; a | b c"},
		{name: "Acquire/TryIsGranted", text: "|; try a; a |; try a; a |"},
		{name: "Acquire/TryLeavesNothing", text: "a |; try b; a |; try b; a |; join c; a | c; try b; a | c; leave b; " +
			"a | c; leave a; c |; leave c; |"},
		{name: "Acquire/JoinsQueue", text: "a |; join B; a | B; join c; a | B c; join D; a | B c D"},
		{name: "Acquire/AfterNotAfterReportsOwnClaim", text: "a | b; join a late; a | b; join b late; a | b"},

		{name: "First/GoesToTheHead", text: "a | b c; join d first; a | d b c; join e first; a | e d b c; leave a; " +
			"e | d b c; leave e; d | b c"},
		{name: "First/WaiterKeepsItsPosition", text: "a | b; join c first; a | c b; join c first; a | c b; join c first; " +
			"a | c b; join b first; a | c b; join d first; a | d c b; join c first; a | d c b"},
		{name: "First/HolderIsNotJoinedAgain", text: "|; join a first; a |; join b; a | b; join a first; a | b; join a first; a | b"},
		{name: "First/HeavyOneHoldsUpTheQueue", limit: 3, text: "a b | c2; join d3 first; a b | d3 c2; join e; " +
			"a b | d3 c2 e; leave a; b | d3 c2 e; leave b; d3 | c2 e"},
		{name: "First/TryThatFitsIsGranted", limit: 3, text: "a2 | b3; try c2 first; a2 | b3; try d first; a2 d | b3"},
		{name: "First/AfterNotAfterJoinsNothing", text: "a | b; join c first late; a | b"},

		{name: "Queue/IsServedInOrder", text: "A | b C D e f; leave A; b | C D e f; leave b; C | D e f; leave C; D | e f; " +
			"leave D; e | f; leave e; f |; leave f; |"},
		{name: "Queue/ShowsTheNearestAhead", text: "a | b c d e f g h i j k l m; join b; .; join c; .; join d; .; join e; .; " +
			"join f; .; join g; .; join h; .; join i; .; join j; .; join k; .; join l; .; join m; .; try n; ."},
		{name: "Load/ShowsTheQueue", limit: 3, text: "a3 | b c2 d3 e f2 g3 h i2 j3 k l2 m3 n o2 p3 q r2 s3 t u2 v3 w x2 y3 z " +
			"A2 B3 C D2 E3 F G2 H3 I J2 K3 L M2 N3 O; try P; ."},
		{name: "Queue/WeightsNeverExceedTheLimit", limit: 5, text: "|; join a2; a2 |; join b2; a2 b2 |; leave a; b2 |; join c5; " +
			"b2 | c5; join d; b2 | c5 d; join e3; b2 | c5 d e3; leave b; c5 | d e3; leave c; d e3 |; join f; d e3 f |; " +
			"join g; d e3 f | g; join h4; d e3 f | g h4; leave d; e3 f g | h4; join i5; e3 f g | h4 i5; join j2; " +
			"e3 f g | h4 i5 j2; leave e; f g | h4 i5 j2; leave f; g h4 | i5 j2; join k; g h4 | i5 j2 k; leave g; " +
			"h4 | i5 j2 k; join l3; h4 | i5 j2 k l3; leave h; i5 | j2 k l3; leave i; j2 k | l3"},
		{name: "Expired/HolderIsDropped", text: "A |; expire A; .; join b naming; b |; leave A; ."},
		{name: "Expired/FirstWaiterIsGrantedNotTheCaller", text: "A | b; expire A; .; join c naming; b | c"},
		{name: "Expired/TryDropsThemToo", text: "A |; expire A; .; try b; .; try b naming; b |"},
		{name: "Expired/LateRequestStillSettles", text: "A | b; expire A; .; join c naming late; b |"},
		{name: "Expired/OnlyThoseNamed", limit: 2, text: "a B | c2; expire B; .; join d naming; a | c2 d"},

		{name: "Mismatch/Kind", text: "a |; mismatch b=other; .; join c; a | c; mismatch b; ."},
		{name: "Mismatch/FreeKeyTakesOver", text: "a |; leave a; |; join B2/4=other over; B2 |; mismatch c/1=mutex; .; expire B; .; " +
			"join d/1=mutex over naming; d |"},
		{name: "Mismatch/Limit", limit: 3, text: "a |; mismatch b/5; ."},

		{name: "Yield/IsShown", limit: 3, text: "a~ b | c2~; leave b; a c2 |; leave a; c2 |; join d; c2 d |"},
		{name: "Notice/YieldFromTheFirstWaiter", text: "a~ |; try B; .; join C; a | C; join C; .; join C; .; join D; a | C D; join D; .; " +
			"try B; .; join E first; a | E C D; join C; .; leave E; a | C D; join C; .; leave C; a | D; join D; .; join a; ."},
		{name: "Notice/YieldToEveryHolderThatYields", limit: 4, text: "a~ b~ C~ d |; join E~; a b C d | E; join f~; a b C d | E f"},
		{name: "Notice/GrantSaysWhetherToYield", text: "A | b~ c; leave A; b | c; leave b; c |; join d~; c | d; leave c; d | // " +
			"A | b~; expire A; .; join c naming; b | c"},
		{name: "Notice/GrantByAnyCommand", limit: 3, text: "a2 | b3 c; leave b; a2 c | // a2 | b3 c; leave a; b3 | c; leave b; c | // " +
			"a2 | B3 c; expire B; .; try d naming; a2 c | // a2 | B3 c; expire B; .; join d naming; a2 c | d // " +
			"a2 | B3 c; expire B; .; join d naming late; a2 c |"},
		{name: "Notice/SeveralGrantsOfOneCommand", limit: 4, text: "A4 | b C d2 e4; leave A; b C d2 | e4; leave d; b C | e4; leave b; " +
			"C | e4; leave C; e4 |"},
		{name: "Notice/OnlyOfWhatTheCommandDid", text: "A | b c d; leave A; b | c d; wait; .; leave A; .; keep A; .; seal A 1; .; join b; .; " +
			"join c; .; join d; .; join d naming; .; join E late; .; try F; .; join g; b | c d g; leave d; b | c g; publish b; .; resize 1; ."},
		{name: "Notice/OwnGrantIsInTheReply", limit: 2, text: "A2 | b c; expire A; .; join c naming; b c |; leave b; c |; join d; c d |"},

		{name: "Queue/LightDoesNotOvertakeHeavy", limit: 3, text: "a2 | b3 c; join c; a2 | b3 c; join c; a2 | b3 c; " +
			"leave a; b3 | c; leave b; c |"},
		{name: "Queue/TryDoesNotOvertake", limit: 3, text: "a2 | b3; try c; a2 | b3"},
		{name: "Queue/WhenTheHeavyHeadLeavesTheNextAreGranted", limit: 3, text: "a2 | b3 c d; leave b; a2 c | d"},

		{name: "Release/HolderGrantsNext", text: "a | b c; leave a; b | c"},
		{name: "Release/OneOfSeveralHolders", limit: 3, text: "a b c | d; leave b; a c d |"},
		{name: "Release/FromTheQueue", text: "a | b c d; leave c; a | b d; leave b; a | d; leave d; a |; leave a; |"},
		{name: "Release/AbsentIsNoError", text: "|; leave a; | // a |; leave a; |; leave a; |; leave a; |; leave b; |"},
		{name: "Release/FindsByIDAlone", text: "a | b; leave b by id; a |; leave a by id; |"},
		{name: "Release/RepeatedOrLateNeverFreesNewerHold_B28", text: "a |; leave a; |; join b; b |; join c; b | c; leave a; .; " +
			"keep a; .; leave a; .; keep a; .; leave c; b |; leave b; |; join D; D |; join E; D | E; leave a; .; keep a; .; " +
			"leave a; .; keep a; ."},
		{name: "Notice/GrantByRelease", text: "A | b c; leave A; b | c; leave b; c |; leave c; |; join D; D |; join e; D | e; " +
			"leave D; e |; leave e; |; join F; F |; join g; F | g; leave F; g |"},
		{name: "Token/LastOneStaysReadable", text: "a |; leave a; |"},
		{name: "Term/OnlyGrantsCount", kind: driver.KindElection, text: "|; join a late; |; join b; b |; join c; b | c; join b; .; " +
			"join c; .; try d; .; join b; .; join c; .; try d; .; leave c; b |; keep b; .; publish b; ."},

		{name: "Keep/FromTheQueueReleases", text: "a | b c; keep b; a | c; leave a; c |"},
		{name: "Term/ZeroOfOtherKinds", text: "|; join a; a |; leave a; |; join b; b |; leave b; |; join c=election over; c |; leave c; |; " +
			"join d=mutex over; d |; leave d; |; join e=election over; e |"},
		{name: "Keep/ReleaseEndsIt", text: "a |; keep a; .; join b; a | b; leave a; b |"},
		{name: "Notice/KeepWakesTheFirstWaiter", text: "A | b c d; keep A; .; keep A; .; keep b; A | c d; keep A sooner; . // a |; keep a; ."},
		{name: "Keep/AbsentIsNoError", text: "|; keep a; | // a |; leave a; |; keep a; |; keep b; |; join c; c |; keep a; c |"},

		{name: "Replace/GrantsTheFirstWaiter", text: "a | b; c for a; b | c; leave b; c |; leave c; |"},
		{name: "Replace/GrantsItselfIfNobodyWaits", text: "a |; b for a; b |; c for b; c |; d for c; d |; leave d; |"},
		{name: "Replace/JoinsBehindAll", text: "a | b c d e f g h i j k l; m for a; b | c d e f g h i j k l m"},
		{name: "Replace/LateOnlyReleases", text: "a |; b for a late; | // a | b; c for a late; b |; leave b; |"},
		{name: "Replace/MayRepeat", text: "a | b; c for a; b | c; c for a; b | c; c for a; b | c; leave b; c |; c for a; " +
			"c |; leave c; |"},
		{name: "Replace/OfAReleasedClaim", text: "a |; leave a; |; join b; b |; c for a; b | c; leave c; b |; leave b; |"},

		{name: "Successor/GrantedInTheSameCommand", kind: driver.KindElection, text: "a | b c d e; publish a; " +
			"a | b c d e; leave a to d; d | b c e; leave d; b | c e"},
		{name: "Successor/FirstInTheQueue", kind: driver.KindElection, text: "a | b c; leave a to b; b | c; leave b to c; c |"},
		{name: "Successor/NotWaiting", kind: driver.KindElection, text: "a | b c d; publish a; a | b c d; leave c; " +
			"a | b d; leave a to c; a | b d; leave a to a; a | b d; leave a to x; a | b d; leave a; b | d"},
		{name: "Successor/OnlyFromAHolder", kind: driver.KindElection, text: "a | b c d; publish a; a | b c d; " +
			"leave b to d; a | b c d; leave x to d; a | b c d // |; leave a to b; |"},
		{name: "Successor/RepeatedOrLatePrefersNobody", kind: driver.KindElection, text: "a | b c d e; leave a to d; " +
			"d | b c e; leave a to d; d | b c e; leave a to e; d | b c e; leave a to d; d | b c e; leave d; b | c e; leave a to e; b | c e"},
		{name: "Successor/NotWithKeep", kind: driver.KindElection, text: "a | B C; publish a; .; keep a to C; ."},
		{name: "Notice/ReleaseGrantsTheSuccessor", kind: driver.KindElection, text: "A | B c d; publish A; .; leave A to d; " +
			"d | B c; leave d; B | c; leave B to c; c |"},
		{name: "Successor/FitsOrWaitsAtTheHead", limit: 3, text: "a b2 | c d3; leave a to d; b2 | d3 c; leave b; d3 | c"},

		{name: "Resize/GrowsAndGrants", limit: 2, text: "a2 | b c d2 e; resize 5; a2 b c | d2 e; resize 7; a2 b c d2 e |"},
		{name: "Resize/ShrinksAndBlocksUntilTheyFit", limit: 5, text: "a2 b2 c |; resize 2; a2 b2 c |; join d; " +
			"a2 b2 c | d; leave a; b2 c | d; try e; b2 c | d; leave c; b2 | d; try f; b2 | d; leave b; d |"},
		{name: "Resize/HolderMayRepeat", limit: 4, text: "a4 | b; resize 2; a4 | b; join a; a4 | b; join b; a4 | b; " +
			"join a; a4 | b; leave a; b |"},
		{name: "Resize/WaitingWeightTooGreatIsRefused", limit: 4, text: "a4 | b c3; resize 2; a4 | b c3; resize 1; " +
			"a4 | b c3; resize 3; a4 | b c3; leave c; a4 | b; resize 1; a4 | b; leave a; b |"},
		{name: "Resize/RepeatedChangesNothing", limit: 2, text: "a b | c2; publish a; a b | c2; resize 3; a b | c2; " +
			"resize 3; a b | c2; resize 3; a b | c2"},

		{name: "Resize/FormerLimitIsKept", limit: 2, text: "|; join a; a |; leave a; |; resize 1; .; join b; b |; leave b; |; join c; c |; " +
			"leave c; |; join d/2; d |; leave d; | // |; join a/1=election over; a |; leave a; |; join b=mutex over; b |; leave b; |; " +
			"join c; c |; leave c; |; join d=election over; d |"},
		{name: "Resize/OtherKindHadNoFormerLimits", limit: 2, text: "a |; resize 3; .; leave a; |; join b/2=other over; b |; mismatch c/3; .; " +
			"leave b; |; join d/2=mutex over; d |; mismatch e/3; ."},

		// A claim may still have a limit that the key had before a Resize.
		{name: "Resize/FormerLimitCountsAsThePresent", limit: 2, text: "a2 |; resize 4; .; join b/2; a2 b |; join c/4; " +
			"a2 b c |; join d2/2; a2 b c | d2; try e/2; .; leave a; b c d2 |"},
		{name: "Resize/FormerLimitCountsOnAFreeKey", limit: 2, text: "a |; resize 3; .; leave a; |; join b/2; b |; join c/2; b c |; " +
			"join d/3; b c d |; try e/2; .; leave b; c d |; leave c; d |; leave d; |; join f/2; f |; join g/2; f g |; " +
			"join h/3; f g h |; try i/2; .; leave f; g h |; leave g; h |; leave h; |"},
		{name: "Resize/FromCountsToo", text: "|; resize 3; .; join a/1; a |; join b/3; a b |; join c/1; a b c |; mismatch x/2; .; " +
			"resize 3 from 2; .; join d/2; a b c | d; join e/1; a b c | d e; leave b; a c d | e"},
		{name: "Resize/UnknownLimitIsMismatch", limit: 2, text: "a2 |; resize 3; .; mismatch x/7; .; join b2/2; a2 | b2; mismatch y/1; ."},
		{name: "Resize/UnknownLimitTakesAFreeKeyOver", limit: 2, text: "a |; resize 3; .; leave a; |; join b/7 over; b |; " +
			"mismatch x/2; .; mismatch y/3; ."},
		{name: "Resize/WeightAboveThePresentLimitIsMismatch", limit: 4, text: "a |; resize 2; .; mismatch b3/4; .; join c2/4; " +
			"a | c2; leave a; c2 |; leave c; |; mismatch b; ."},
		{name: "Resize/AndBack", limit: 3, text: "a3 |; resize 5; .; resize 3; .; join b/5; a3 | b; join c/3; a3 | b c; leave a; " +
			"b c |; mismatch d4/5; .; resize 5; .; join d; b c | d4"},
		{name: "Resize/EightFormerLimitsAreKnown", text: "a |; resize 2; .; resize 3; .; resize 4; .; resize 5; .; resize 6; .; " +
			"resize 7; .; resize 8; .; resize 9; .; join b/1; a b |; join c/2; a b c |; join d/3; a b c d |; join e/4; a b c d e |; " +
			"join f/5; a b c d e f |; join g/6; a b c d e f g |; join h/7; a b c d e f g h |; join i/8; a b c d e f g h i |; try j/1; ."},

		{name: "Seal/NotHeld", text: "|; seal x 1; | // a | b c; seal x 1; .; seal b 1; a | c; leave a; c |; seal a 1; ."},
		{name: "Seal/DropsTheQueue", text: "a | b c d e f g h i j k l m; seal a 1; |; join b; .; leave b; .; join c; .; leave c; .; " +
			"join d; .; leave d; .; join e; .; leave e; .; join f; .; leave f; .; join g; .; leave g; .; join h; .; leave h; .; " +
			"join i; .; leave i; .; join j; .; leave j; .; join k; .; leave k; .; join l; .; leave l; .; join m; .; leave m; ."},

		{name: "Tick/LaterOnesAreGranted", kind: driver.KindPeriodic, text: "a:1 |; seal a 1; |; join b:2; b |; seal b 2; |; " +
			"join c:5; c |; seal c 5; |; join d:1125899906842624; d |; seal d 1125899906842624; |; join e:1125899906842625; e |"},
		{name: "Tick/EarlierOnesAreServedFirst", kind: driver.KindPeriodic, text: "a:5 |; join b:5; a | b; join c:7; a | b c; " +
			"join d:4; a | d b c; join e:6; a | d b e c; join f:5; a | d b f e c; join g:1125899906842624; a | d b f e c g; " +
			"join h:7; a | d b f e c h g; leave a; d | b f e c h g; leave d; b | f e c h g; leave b; f | e c h g; leave f; " +
			"e | c h g; leave e; c | h g; leave c; h | g; leave h; g |; leave g; |"},
		{name: "Tick/SealDropsThoseThatAreOver", kind: driver.KindPeriodic, text: "a:5 | b:4 c:5 d:5 e:6 f:7 g:8; seal a 5; " +
			"e | f g; seal e 7; g |; leave b; .; join b; .; leave c; .; join c; .; leave d; .; join d; .; leave e; .; join e; .; " +
			"leave f; .; join f; ."},
		{name: "Tick/SealedKeyKeepsItsKindAndLimit", kind: driver.KindPeriodic, text: "a:5 |; seal a 5; |; mismatch b:5=once; .; " +
			"mismatch c:6=once; .; mismatch d/2:6; ."},
		{name: "Tick/RanksCandidates", kind: driver.KindElection, text: "a:5 |; join b:5; a | b; join c:7; a | b c; join D:3; a | D b c; " +
			"join e:5; a | D b e c; try f:1; .; leave a; D | b e c; join g:5; D | b e g c; join D:3; .; leave D; b | e g c; leave b to g; " +
			"g | e c; leave g; e | c"},
		{name: "Tick/RunThatFailsIsFollowed", kind: driver.KindPeriodic, text: "a:4 |; seal a 4; |; join b:5; b |; join c:5; " +
			"b | c; join d:4; .; leave b; c |; seal c 5; |"},
	}
}

// A scriptRow is a case of one or more scripts.
type scriptRow struct {
	name  string
	kind  driver.Kind // default KindMutex
	limit int64       // default 1
	text  string
}

// scriptCases returns a case for each row of scripts.
func scriptCases() []conformanceCase {
	var cases []conformanceCase
	for _, row := range scripts() {
		kind, limit := cmp.Or(row.kind, driver.KindMutex), cmp.Or(row.limit, 1)
		cases = append(cases, conformanceCase{name: row.name, test: func(e *env) {
			for text := range strings.SplitSeq(row.text, "//") {
				e.script(kind, limit, text)
			}
		}})
	}
	return cases
}

// The clock is read before and after each command. A grant's time lies between these readings, give or take lag.
// MongoDB's routers have clocks of their own, and a short Acquire uses a slightly older time.
const lag = 2 * time.Second

// A stage is the key on which a script runs.
type stage struct {
	*env
	key       string
	kind      driver.Kind
	limit     int64
	by        string // session of the claims with small letters; it listens if the store can notify
	others    string // session of the claims with capital letters
	names     map[string]driver.Claim
	holding   []driver.Claim
	waiting   []driver.Claim
	state     driver.State // as last read
	publisher string       // name of the last claim that published
	terms     int64        // grants of the key as an election
	sealed    int64        // the last tick up to which the key is sealed
	result    string
	kept      map[string]bool // the ids of holders that were released with Keep
	woken     bool            // the last edit set the end of a hold
}

// script runs a script on a key of its own.
func (e *env) script(kind driver.Kind, limit int64, text string) {
	e.Helper()
	s := &stage{env: e, key: newID(), kind: kind, limit: limit, names: make(map[string]driver.Claim), kept: make(map[string]bool)}
	s.others = e.session()
	l := e.hears()
	if l != nil {
		s.by = l.session
	} else {
		s.by = e.session()
	}
	steps := strings.Split(text, ";")
	s.holding, s.waiting = s.parse(steps[0])
	for _, c := range s.holding {
		e.hold(c)
	}
	for _, c := range s.waiting {
		e.queue(c)
	}
	s.state = e.load(s.key)
	s.terms = s.state.Term
	for i := 1; i < len(steps); i += 2 {
		e.notices, e.left, s.woken = nil, false, false
		joined, st := s.edit(strings.Fields(steps[i]))
		s.want(steps[i], steps[i+1], joined, st, l != nil)
	}
}

// parse returns the holders and the queue of a state.
func (s *stage) parse(text string) (holders, queue []driver.Claim) {
	if strings.TrimSpace(text) == "." {
		return s.holding, s.waiting
	}
	left, right, _ := strings.Cut(text, "|")
	for _, word := range strings.Fields(left) {
		holders = append(holders, s.named(word))
	}
	for _, word := range strings.Fields(right) {
		queue = append(queue, s.named(word))
	}
	return holders, queue
}

// claimWord matches a name of one letter and, if they follow, the weight, the limit, the tick, the kind and Yield of
// the claim.
var claimWord = regexp.MustCompile(`^([a-zA-Z])(\d*)(?:/(\d+))?(?::(\d+))?(?:=(\w+))?(~?)$`)

// named returns the claim for a word of the script. It creates the claim at the first mention of its name.
func (s *stage) named(word string) driver.Claim {
	s.Helper()
	parts := claimWord.FindStringSubmatch(word)
	if parts == nil {
		s.Fatalf("the script names a claim %q", word)
	}
	c, ok := s.names[parts[1]]
	if !ok {
		session := s.by
		if word < "a" {
			session = s.others
		}
		c = s.weighted(s.key, session, cmp.Or(number(parts[2]), 1), cmp.Or(number(parts[3]), s.limit))
		c.Kind, c.Tick, c.Yield = cmp.Or(driver.Kind(parts[5]), s.kind), number(parts[4]), parts[6] != ""
		s.names[parts[1]] = c
	}
	return c
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func among(claims []driver.Claim, c driver.Claim) bool {
	return slices.ContainsFunc(claims, func(o driver.Claim) bool { return o.ID == c.ID })
}

// leaving returns c for a Release: with its token and NoneWaiting, as a session sets them.
func (s *stage) leaving(c driver.Claim) driver.Claim {
	if h, ok := s.state.Holder(c.ID); ok {
		c.Token, c.NoneWaiting = h.Token, s.alone[c.ID]
	}
	return c
}

// edit sends an edit and checks its reply, except for the state. After an Acquire it returns the claim and the state,
// so that the method want can check the state.
func (s *stage) edit(words []string) (joined driver.Claim, st *driver.State) {
	s.Helper()
	if words[0] == "wait" {
		s.until(s.now().Add(2 * time.Millisecond))
		return joined, nil
	}
	option := strings.Join(words[2:], " ")
	c := driver.Claim{}
	if words[0] != "resize" && words[1] != "for" {
		c = s.named(words[1])
	}
	switch words[0] {
	case "leave", "keep":
		l := driver.Release{Claim: s.leaving(c)}
		left := among(s.holding, c) || among(s.waiting, c)
		if words[0] == "keep" {
			l.Keep = long
			s.woken = among(s.holding, c) && !s.kept[c.ID]
			s.kept[c.ID] = s.kept[c.ID] || s.woken
		}
		if option == "sooner" {
			l.Keep, s.woken = long/4, true
		}
		if option == "by id" {
			l.Claim = driver.Claim{Key: c.Key, ID: c.ID}
		}
		if name, ok := strings.CutPrefix(option, "to "); ok {
			to := s.named(name)
			l.Successor = to.ID
			if left = among(s.holding, c); left && !among(s.waiting, to) {
				if done, err := s.store.Edit(s.ctx, driver.Edit{Release: &l}); !errors.Is(err, driver.ErrNotWaiting) || len(done.Notices) > 0 {
					s.Errorf("%q: %+v, %v; want ErrNotWaiting", words, done, err)
				}
				return joined, nil
			}
		}
		s.releaseAs(l.Claim, l, left)
	case "join", "try":
		notAfter := s.far
		if slices.Contains(words, "late") {
			notAfter = s.state.Now.Add(-time.Second)
		}
		c.First = slices.Contains(words, "first")
		if slices.Contains(words, "over") {
			s.kind, s.limit = c.Kind, c.Limit
		}
		var expired []string
		if slices.Contains(words, "naming") {
			expired = []string{newID(), s.others, newID()} // the two new ids belong to no session
		}
		state := s.acquireAs(c, words[0] == "join", notAfter, expired...)
		return c, &state
	case "seal":
		holds := among(s.holding, c)
		s.releaseAs(s.leaving(c), driver.Release{Seal: number(words[2]), Result: []byte(words[1])}, holds || among(s.waiting, c))
		if holds && number(words[2]) > s.sealed {
			s.sealed, s.result = number(words[2]), words[1]
		}
	case "expire":
		s.expire(c.Session)
	case "mismatch":
		s.wantMismatch(c, driver.MismatchError{Key: s.key, Kind: s.kind, WantKind: c.Kind, Limit: s.limit, WantLimit: c.Limit})
	case "resize":
		from, limit := s.limit, number(words[1])
		if len(words) > 2 {
			from = number(words[3])
		}
		if slices.ContainsFunc(s.waiting, func(w driver.Claim) bool { return w.Weight > limit }) {
			e := driver.Edit{Resize: &driver.Resize{Key: s.key, Kind: s.kind, From: from, Limit: limit}}
			if done, err := s.store.Edit(s.ctx, e); !errors.Is(err, driver.ErrRefused) || len(done.Notices) > 0 {
				s.Errorf("%q: %+v, %v; want ErrRefused", words, done, err)
			}
			return joined, nil
		}
		s.resize(s.key, from, limit)
		s.limit = limit
	case "publish":
		s.publish(c, []byte(words[1]))
		s.publisher = words[1]
	default: // "c for a"
		old := s.named(words[2])
		notAfter := s.far
		if len(words) > 3 {
			notAfter = s.state.Now.Add(-time.Second)
		}
		c = s.named(words[0])
		state := s.join(driver.Edit{Release: &driver.Release{Claim: s.leaving(old)}, Acquire: &driver.Acquire{Claim: c, Wait: true, NotAfter: notAfter}})
		if want := among(s.holding, old) || among(s.waiting, old); s.left != want {
			s.Errorf("%q: the claim was there: %t, want %t", words, s.left, want)
		}
		return c, &state
	}
	return joined, nil
}

// want checks the key's state after an edit. After an Acquire, joined is the claim and st is the state in the reply,
// which want also checks. After other edits, st is nil.
func (s *stage) want(edit, text string, joined driver.Claim, st *driver.State, notified bool) {
	s.Helper()
	notices := s.notices
	now, before := s.load(s.key), s.state
	holders, queue := s.parse(text)
	s.wantHolders(now, holders...)
	s.wantQueue(now, queue...)
	var due []driver.Notice
	grants := int64(0)
	for i, h := range now.Holders {
		c := holders[i]
		if h.Session != c.Session || h.Weight != c.Weight || h.Yield != c.Yield || h.Until.IsZero() == s.kept[c.ID] {
			s.Errorf("%q: %s holds as %+v, want the session, the weight and Yield of %+v, and an end only after keep", edit, c.ID, h, c)
		}
		if among(s.holding, c) {
			continue
		}
		grants++
		room := now.Token - h.Token // reserved for hand-offs
		if h.Since.Before(before.Now.Add(-lag)) || h.Since.After(now.Now.Add(lag)) ||
			i == len(holders)-1 && room != 0 && (!c.Yield || room < 0 || room >= driver.TokenRoom) {
			s.Errorf("%q: granted %+v between %v and %v, the key's last token is %d", edit, h, before.Now, now.Now, now.Token)
		}
		switch {
		case now.Sealed > before.Sealed:
			due = append(due, wakes(c)) // the first that remains
		case c.ID != joined.ID:
			due = append(due, granted(c, len(queue) > 0))
		}
	}
	for _, c := range s.waiting {
		if now.Sealed > before.Sealed && !among(holders, c) && !among(queue, c) {
			due = append(due, wakes(c))
		}
	}
	if len(queue) > 0 && queue[0].ID == joined.ID {
		for _, c := range holders {
			if c.Yield {
				due = append(due, yields(c))
			}
		}
	}
	if s.woken && len(queue) > 0 {
		due = append(due, wakes(queue[0]))
	}
	if grants == 0 && now.Token != before.Token {
		s.Errorf("%q: granted nothing, but the last token was %d and is %d", edit, before.Token, now.Token)
	}
	term := int64(0)
	if s.kind == driver.KindElection {
		s.terms += grants
		term = s.terms
	}
	if now.Term != term {
		s.Errorf("%q: term %d, want %d", edit, now.Term, term)
	}
	unused := before.Kind == "" && !among(holders, joined) && !among(queue, joined) && !strings.Contains(edit, "resize")
	if now.Kind == "" != unused {
		s.Errorf("%q: the key's kind was %q and is %q", edit, before.Kind, now.Kind)
	}
	if now.Kind != "" && (now.Kind != s.kind || now.Limit != s.limit) {
		s.Errorf("%q: kind %q, limit %d; want %q, %d", edit, now.Kind, now.Limit, s.kind, s.limit)
	}
	value := []byte(nil)
	switch {
	case s.publisher != "" && among(holders, s.named(s.publisher)):
		value = []byte(s.publisher)
	case s.sealed > 0:
		value = []byte(s.result)
	}
	s.wantValue(now, value)
	if now.Sealed != s.sealed {
		s.Errorf("%q: sealed up to %d, want %d", edit, now.Sealed, s.sealed)
	}
	s.wantWaiters(edit, now, queue)
	if st != nil {
		i := slices.IndexFunc(queue, func(c driver.Claim) bool { return c.ID == joined.ID })
		var nearest []string
		if i >= 0 {
			nearest = claimIDs(queue[max(0, i-8):i])
		}
		if i < 0 && s.sealed == 0 && !among(holders, joined) {
			nearest = claimIDs(queue[:min(8, len(queue))])
		}
		s.wantHolders(*st, holders...)
		s.wantWaiters(edit, *st, queue)
		if st.Term != now.Term || st.Sealed != now.Sealed {
			s.Errorf("%q: the reply has term %d, sealed up to %d; Load has %d, %d", edit, st.Term, st.Sealed, now.Term, now.Sealed)
		}
		if st.Position != i+1 || st.Waiting != len(queue) || st.Token != now.Token ||
			(i >= 0 || nearest != nil) && !slices.Equal(ahead(*st), nearest) {
			s.Errorf("%q: the reply has %+v, want position %d of %d, behind %q, and the token %d", edit, st, i+1, len(queue), nearest, now.Token)
		}
		s.wantValue(*st, value)
	}
	if notified {
		s.notices = notices
		s.wantNotices(due...)
	}
	s.holding, s.waiting, s.state = holders, queue, now
}

// wantWaiters checks the sessions, weights and ticks of the waiters that a state shows.
func (s *stage) wantWaiters(edit string, st driver.State, queue []driver.Claim) {
	s.Helper()
	for _, w := range st.WaitersAhead {
		i := slices.IndexFunc(queue, func(c driver.Claim) bool { return c.ID == w.Claim })
		if i < 0 || w.Session != queue[i].Session || w.Weight != queue[i].Weight || w.Tick != queue[i].Tick {
			s.Errorf("%q: waiter %+v, want the session, weight and tick of one in %+v", edit, w, queue)
		}
	}
}
