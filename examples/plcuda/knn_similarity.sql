/* The k molecules most similar to each query, by Tanimoto's measure of their fingerprints: the number of bits set in both, divided
 * by the number of bits set in either (0 if no bit is).
 *
 *     SELECT * FROM knn_similarity(10, 'queries', 'molecules') ORDER BY query, similarity DESC, molecule;
 *
 * Both are tables of gstore_fdw with columns id int and fingerprint bytea. All fingerprints are of one length, at most
 * 4096 bytes. Rows with a NULL in one of the columns are left out. Of equally similar molecules those with lower ids come first.
 *
 * Method: each thread keeps a molecule's words in registers, and all threads of a block compare their molecules with the same
 * queries, which are in shared memory. Each query has a list of its k best so far, under a lock. Few molecules come as far as that:
 * they are first compared with the worst of the list, as it was when the block began with these molecules. The lists are
 * made from a sample before, so that this holds from the beginning. */

/* STABLE, as the two below: it counts the rows that the search sees. */
CREATE FUNCTION knn_similarity_count(k int, queries reggstore, molecules reggstore) RETURNS bigint STABLE LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM %s', queries::regclass) INTO n;
    RETURN n;
END $$;

/* What struct header, and of each query struct best and its list need. */
CREATE FUNCTION knn_similarity_memory(k int, queries reggstore, molecules reggstore) RETURNS bigint STABLE LANGUAGE SQL
    RETURN 64 + knn_similarity_count(k, queries, molecules) * (32 + 8 * k::bigint);

/* A warp a query. */
CREATE FUNCTION knn_similarity_threads(k int, queries reggstore, molecules reggstore) RETURNS bigint STABLE LANGUAGE SQL
    RETURN 32 * greatest(1, knn_similarity_count(k, queries, molecules));

CREATE FUNCTION knn_similarity_check(k int, queries reggstore, molecules reggstore) RETURNS boolean IMMUTABLE LANGUAGE SQL
    RETURN k BETWEEN 1 AND 1000000;

CREATE FUNCTION knn_similarity(k int, queries reggstore, molecules reggstore)
    RETURNS TABLE (query int, molecule int, similarity real) LANGUAGE plcuda STRICT AS $$
#plcuda_sanity_check knn_similarity_check
#plcuda_working_bufsz knn_similarity_memory
#plcuda_decl
#define BYTES_MAX 4096
#define WORDS 32 /* of 32 bits, that are kept in registers: longer fingerprints are read from memory each time */
#define TILES 4  /* groups of as many molecules as a block has threads, in a piece of work */
#define SAMPLE 8192
#define SHARED_BYTES 32768
#define SPREAD 2654435761u /* a prime: neighbours in the table are not searched at the same time */

typedef struct header {
    uint32_t length; /* of fingerprints, in bytes, and 1; 0: not known yet */
    uint32_t count;  /* of queries with a list */
    uint64_t pieces; /* of work that blocks have taken */
} header;

/* A molecule in a list is a key, a greater one for a better molecule: similarity and id. 0: none. */
typedef struct best {
    uint64_t worst; /* of the whole list */
    uint64_t row;   /* the query's */
    uint32_t ones;  /* in its fingerprint */
    uint32_t lock;
} best;

typedef struct search {
    const plcuda_call *call;
    const plcuda_table *queries, *molecules;
    int32_t query_id, query_column, molecule_id, molecule_column;
    uint32_t k;
    header *head;
    best *bests;
    uint64_t *lists; /* k a query, the best first */
} search;

typedef struct molecule {
    pg_bytea_t fingerprint;
    uint32_t ones;
    int32_t id;
    int known; /* no NULLs, and not deleted */
} molecule;

GVM_DEVICE search make_search(const plcuda_call *call, void *memory, int32_t k, const plcuda_table *queries,
                              const plcuda_table *molecules, uint64_t memory_bytes)
{
    search s;

    s.call = call;
    s.queries = queries;
    s.molecules = molecules;
    s.query_id = plcuda_column_number(queries, "id");
    s.query_column = plcuda_column_number(queries, "fingerprint");
    s.molecule_id = plcuda_column_number(molecules, "id");
    s.molecule_column = plcuda_column_number(molecules, "fingerprint");
    s.k = (uint32_t)k;
    s.head = (header *)memory;
    s.bests = (best *)((char *)memory + 64);
    s.lists = (uint64_t *)(s.bests + (memory_bytes - 64) / (32 + 8 * (uint64_t)k));
    return s;
}

/* ---- fingerprints: words of 32 bits; 0 behind the end */

GVM_DEVICE_RARE uint32_t get_word(pg_bytea_t f, uint32_t number)
{
    uint32_t word = 0, i;

    if (4 * number + 4 <= f.length && (uint64_t)f.value % 4 == 0)
        return ((const uint32_t *)(const void *)f.value)[number];
    for (i = 0; i < 4 && 4 * number + i < f.length; i++)
        word |= (uint32_t)(unsigned char)f.value[4 * number + i] << (8 * i);
    return word;
}

GVM_DEVICE uint32_t count_words(const search *s)
{
    return (s->head->length + 2) / 4;
}

GVM_DEVICE uint32_t get_majority(uint32_t a, uint32_t b, uint32_t c)
{
    return (a & b) | (a & c) | (b & c);
}

/* Bits set in both. The number of words is a multiple of 8. Seven words are added up bit by bit to three, with weights
 * 1, 2 and 4: a GPU counts the bits of a word at a fourth of the rate at which it does other things with it. */
GVM_DEVICE uint32_t count_both(const uint32_t *a, const uint32_t *b, uint32_t words)
{
    uint32_t ones = 0, twos = 0, fours = 0, i;

    GVM_UNROLL
    for (i = 0; i < words; i += 8) {
        const uint32_t x0 = a[i] & b[i], x1 = a[i + 1] & b[i + 1], x2 = a[i + 2] & b[i + 2];
        const uint32_t x3 = a[i + 3] & b[i + 3], x4 = a[i + 4] & b[i + 4], x5 = a[i + 5] & b[i + 5];
        const uint32_t x6 = a[i + 6] & b[i + 6], x7 = a[i + 7] & b[i + 7];
        const uint32_t s0 = x0 ^ x1 ^ x2, s1 = s0 ^ x3 ^ x4;
        const uint32_t t0 = get_majority(x0, x1, x2), t1 = get_majority(s0, x3, x4), t2 = get_majority(s1, x5, x6);

        ones += gvm_count_ones(s1 ^ x5 ^ x6) + gvm_count_ones(x7);
        twos += gvm_count_ones(t0 ^ t1 ^ t2);
        fours += gvm_count_ones(get_majority(t0, t1, t2));
    }
    return ones + 2 * twos + 4 * fours;
}

GVM_DEVICE uint32_t count_ones_of(pg_bytea_t f)
{
    uint32_t ones = 0, i;

    for (i = 0; 4 * i < f.length; i++)
        ones += gvm_count_ones(get_word(f, i));
    return ones;
}

/* All are as long as the first one that was seen. */
GVM_DEVICE void check_length(const search *s, pg_bytea_t f)
{
    const uint32_t length = gvm_load_consume_u32(&s->head->length);

    if (f.length > BYTES_MAX)
        plcuda_raise(s->call, "22023", "a fingerprint is longer than 4096 bytes");
    else if (length != f.length + 1 &&
             (length != 0 || gvm_atomic_cas_u32(&s->head->length, 0, f.length + 1) != 0) &&
             gvm_load_consume_u32(&s->head->length) != f.length + 1)
        plcuda_raise(s->call, "22023", "the fingerprints are not all of one length");
}

GVM_DEVICE molecule get_molecule(const search *s, uint64_t row)
{
    molecule m = {{0, 0, 1}, 0, 0, 0};

    if (plcuda_is_live(s->molecules, row)) {
        const pg_int4_t id = plcuda_get_int4(s->molecules, s->molecule_id, row);

        m.fingerprint = plcuda_get_bytea(s->molecules, s->molecule_column, row);
        m.id = id.value;
        m.known = !id.isnull && !m.fingerprint.isnull;
    }
    if (m.known)
        check_length(s, m.fingerprint);
    /* After an error there is no result, but nothing is read that is not there either. */
    m.known = m.known && m.fingerprint.length + 1 == gvm_load_consume_u32(&s->head->length);
    return m;
}

/* ---- lists */

typedef union bits {
    float number;
    uint32_t word;
} bits;

GVM_DEVICE uint64_t make_key(uint32_t both, uint32_t either, int32_t id)
{
    bits b;

    b.number = either > 0 ? (float)both / (float)either : 0;
    return (uint64_t)(b.word + 1) << 32 | ~((uint32_t)id ^ 0x80000000u);
}
GVM_DEVICE float get_similarity(uint64_t key)
{
    bits b;

    b.word = (uint32_t)(key >> 32) - 1;
    return b.number;
}
GVM_DEVICE int32_t get_id(uint64_t key)
{
    return (int32_t)(~(uint32_t)key ^ 0x80000000u);
}

/* Of the bits of two fingerprints, added, so many 65536ths are at least in both if the similarity is that of the key; 2 less, for
 * rounding. */
GVM_DEVICE uint32_t get_least_part(uint64_t key)
{
    const float similarity = key == 0 ? 0 : get_similarity(key);
    const float part = similarity / (1 + similarity) * 65536;

    return part > 2 ? (uint32_t)part - 2 : 0;
}

/* Puts the key into the query's list. All lanes of a warp call it. */
GVM_DEVICE_RARE void insert_key(const search *s, uint32_t query, uint64_t key)
{
    uint64_t *list = s->lists + (uint64_t)query * s->k;
    const uint32_t lanes = gvm_warp_size(), mask = gvm_warp_mask();
    uint32_t at = 0, more = lanes, i, rounds;

    if (gvm_lane() == 0)
        while (gvm_atomic_cas_u32(&s->bests[query].lock, 0, 1) != 0)
            gvm_pause();
    gvm_fence();
    gvm_warp_sync();
    for (i = gvm_lane(); more == lanes; i += lanes) {
        more = gvm_count_ones(gvm_warp_ballot(mask, i < s->k && list[i] > key));
        at += more;
    }
    if (at < s->k) {
        /* Those behind move by one, the last ones first. */
        for (rounds = (s->k - at + lanes - 1) / lanes; rounds > 0; rounds--) {
            uint64_t moved = 0;

            i = at + (rounds - 1) * lanes + gvm_lane();
            if (i > at && i < s->k)
                moved = list[i - 1];
            gvm_warp_sync();
            if (i < s->k)
                list[i] = i == at ? key : moved;
            gvm_warp_sync();
        }
        if (gvm_lane() == 0)
            gvm_store_release_u64(&s->bests[query].worst, list[s->k - 1]);
    }
    gvm_fence();
    gvm_warp_sync();
    if (gvm_lane() == 0)
        gvm_atomic_exchange_u32(&s->bests[query].lock, 0);
    gvm_warp_sync();
}

/* Each lane has a key, or none (0). All lanes of a warp call it. */
GVM_DEVICE_RARE void insert_keys(const search *s, uint32_t query, uint64_t key)
{
    const uint32_t mask = gvm_warp_mask();
    uint32_t set;

    while ((set = gvm_warp_ballot(mask, key > gvm_load_consume_u64(&s->bests[query].worst))) != 0) {
        const uint32_t lane = gvm_count_ones((set & (0 - set)) - 1);

        insert_key(s, query, gvm_warp_get_u64(key, lane));
        if (gvm_lane() == lane)
            key = 0;
    }
}

/* ---- the sample: rows at equal distances, for one query by one warp */

GVM_DEVICE uint64_t get_sample_step(const search *s)
{
    const uint64_t sample = 4 * (uint64_t)s->k > SAMPLE ? 4 * (uint64_t)s->k : SAMPLE;

    return s->molecules->rows > sample ? s->molecules->rows / sample : 1;
}

GVM_DEVICE void search_sample(const search *s, uint32_t query, pg_bytea_t fingerprint)
{
    const uint64_t step = get_sample_step(s);
    const uint32_t ones = s->bests[query].ones;
    uint64_t row;

    for (row = 0; row < s->molecules->rows; row += step * gvm_warp_size()) {
        const molecule m = get_molecule(s, row + step * gvm_lane());
        uint32_t both = 0, either = ones, i, word;

        for (i = 0; m.known && 4 * i < fingerprint.length; i++) {
            word = get_word(m.fingerprint, i);
            both += gvm_count_ones(word & get_word(fingerprint, i));
            either += gvm_count_ones(word);
        }
        insert_keys(s, query, m.known ? make_key(both, either - both, m.id) : 0);
    }
}

/* A list for the query of a row. All lanes of a warp call it. */
GVM_DEVICE void begin_query(const search *s, uint64_t row)
{
    const pg_int4_t id = plcuda_get_int4(s->queries, s->query_id, row);
    const pg_bytea_t fingerprint = plcuda_get_bytea(s->queries, s->query_column, row);
    uint32_t query = 0;

    if (id.isnull || fingerprint.isnull)
        return;
    check_length(s, fingerprint);
    if (fingerprint.length + 1 != gvm_load_consume_u32(&s->head->length))
        return;
    if (gvm_lane() == 0) {
        query = gvm_atomic_add_u32(&s->head->count, 1);
        s->bests[query].row = row;
        s->bests[query].ones = count_ones_of(fingerprint);
    }
    gvm_warp_sync();
    query = gvm_warp_get_u32(query, 0);
    search_sample(s, query, fingerprint);
}

/* ---- all others */

/* The block's shared memory: the words of some queries, and of each the number of ones and its least part. */
typedef struct queries {
    uint32_t *words, *ones, *parts;
    uint32_t first, count, stride; /* stride: in words, that of a query */
} queries;

GVM_DEVICE void load_queries(const search *s, const queries *q)
{
    uint32_t i;

    gvm_block_sync();
    for (i = gvm_thread(); i < q->count * q->stride; i += gvm_block_threads())
        q->words[i] = get_word(
            plcuda_get_bytea(s->queries, s->query_column, s->bests[q->first + i / q->stride].row), i % q->stride);
    for (i = gvm_thread(); i < q->count; i += gvm_block_threads())
        q->ones[i] = s->bests[q->first + i].ones;
}

GVM_DEVICE void load_parts(const search *s, const queries *q)
{
    uint32_t i;

    gvm_block_sync();
    for (i = gvm_thread(); i < q->count; i += gvm_block_threads())
        q->parts[i] = get_least_part(gvm_load_consume_u64(&s->bests[q->first + i].worst));
    gvm_block_sync();
}

/* Returns how many bits are set. */
GVM_DEVICE uint32_t load_molecule(pg_bytea_t f, uint32_t *words)
{
    uint32_t ones = 0, i;

    if (f.length == 4 * WORDS && (uint64_t)f.value % 8 == 0) {
        GVM_UNROLL
        for (i = 0; i < WORDS / 2; i++) {
            const uint64_t two = ((const uint64_t *)(const void *)f.value)[i];

            words[2 * i] = (uint32_t)two;
            words[2 * i + 1] = (uint32_t)(two >> 32);
        }
    } else {
        GVM_UNROLL
        for (i = 0; i < WORDS; i++)
            words[i] = get_word(f, i);
    }
    GVM_UNROLL
    for (i = 0; i < WORDS; i++)
        ones += gvm_count_ones(words[i]);
    return ones;
}

GVM_DEVICE void compare_pair(const search *s, const queries *q, uint32_t query, const molecule *m, uint32_t both)
{
    const uint32_t sum = q->ones[query] + m->ones;

    if (gvm_warp_any(gvm_warp_mask(), m->known && both << 16 >= q->parts[query] * sum))
        insert_keys(s, q->first + query, m->known ? make_key(both, sum - both, m->id) : 0);
}

/* Each thread has a molecule. They begin with another query than other blocks, so as not to wait for the same lists. */
GVM_DEVICE void compare(const search *s, const queries *q, molecule *m)
{
    uint32_t words[WORDS], n, query = (uint32_t)((uint64_t)q->count * gvm_block() / gvm_block_count());

    m->ones = load_molecule(m->fingerprint, words);
    for (n = 0; n < q->count; n++) {
        compare_pair(s, q, query, m, count_both(q->words + query * WORDS, words, WORDS));
        query = query + 1 == q->count ? 0 : query + 1;
    }
}

GVM_DEVICE void compare_long(const search *s, const queries *q, molecule *m)
{
    const uint32_t words = m->known ? count_words(s) : 0;
    uint32_t query, both, i;

    m->ones = count_ones_of(m->fingerprint);
    for (query = 0; query < q->count; query++) {
        for (both = i = 0; i < words; i++)
            both += gvm_count_ones(q->words[query * words + i] & get_word(m->fingerprint, i));
        compare_pair(s, q, query, m, both);
    }
}

GVM_DEVICE void compare_tile(const search *s, const queries *q, uint64_t tile, uint64_t tiles, uint64_t step)
{
    const uint64_t row = tile * SPREAD % tiles * gvm_block_threads() + gvm_thread();
    molecule m = {{0, 0, 1}, 0, 0, 0};

    load_parts(s, q);
    if (row % step != 0) /* else it was in the sample */
        m = get_molecule(s, row);
    if (q->stride == WORDS)
        compare(s, q, &m);
    else
        compare_long(s, q, &m);
}

/* A piece of work is some queries and TILES tiles; those of the same queries follow one another. */
GVM_DEVICE void search_rows(const search *s)
{
    const uint64_t tiles = (s->molecules->rows + gvm_block_threads() - 1) / gvm_block_threads();
    const uint32_t pieces = (uint32_t)((tiles + TILES - 1) / TILES); /* of the same queries */
    const uint64_t step = get_sample_step(s);
    uint32_t most, piece, i;
    queries q;

    q.stride = count_words(s) > WORDS ? count_words(s) : WORDS;
    most = SHARED_BYTES / (4 * q.stride + 8);
    q.words = (uint32_t *)gvm_shared();
    q.ones = q.words + most * q.stride;
    q.parts = q.ones + most;
    q.count = 0;
    for (piece = (uint32_t)plcuda_block_next(&s->head->pieces); piece / pieces * most < s->head->count;
         piece = (uint32_t)plcuda_block_next(&s->head->pieces)) {
        const uint32_t first = piece / pieces * most, left = s->head->count - first;

        if (q.count == 0 || q.first != first) {
            q.first = first;
            q.count = left < most ? left : most;
            load_queries(s, &q);
        }
        for (i = 0; i < TILES && piece % pieces * TILES + i < tiles; i++)
            compare_tile(s, &q, piece % pieces * TILES + i, tiles, step);
    }
}
#plcuda_end

#plcuda_prep
#plcuda_num_threads knn_similarity_threads
const search s = make_search(plcuda, workbuf, arg1.value, arg2.value, arg3.value, workbuf_bytes);
uint64_t row;

for (row = gvm_thread_global() / gvm_warp_size(); row < arg2.value->rows; row += gvm_thread_count() / gvm_warp_size())
    if (plcuda_is_live(arg2.value, row))
        begin_query(&s, row);
#plcuda_end

#plcuda_begin
#plcuda_num_threads 135168
#plcuda_shmem_blocksz 32768
const search s = make_search(plcuda, workbuf, arg1.value, arg2.value, arg3.value, workbuf_bytes);

if (s.head->count > 0 && s.molecules->rows > 0)
    search_rows(&s);
#plcuda_end

#plcuda_post
#plcuda_num_threads 16384
const search s = make_search(plcuda, workbuf, arg1.value, arg2.value, arg3.value, workbuf_bytes);

for (uint64_t i = gvm_thread_global(); i < (uint64_t)s.head->count * s.k; i += gvm_thread_count()) {
    plcuda_row *row = s.lists[i] != 0 ? plcuda_append(plcuda) : 0;

    if (row != 0) {
        row->query = plcuda_get_int4(s.queries, s.query_id, s.bests[i / s.k].row);
        row->molecule.value = get_id(s.lists[i]);
        row->similarity.value = get_similarity(s.lists[i]);
        row->molecule.isnull = row->similarity.isnull = 0;
    }
}
#plcuda_end
$$;

/* The same in SQL, over any tables. */
CREATE FUNCTION knn_similarity_sql(k int, queries regclass, molecules regclass)
    RETURNS TABLE (query int, molecule int, similarity real) STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE format($q$
        SELECT q.id, best.id, best.similarity
        FROM (SELECT id, ('x' || encode(fingerprint, 'hex'))::varbit AS f FROM %s WHERE id IS NOT NULL AND fingerprint IS NOT NULL) q,
            LATERAL (SELECT id, coalesce(bit_count(f & q.f)::real / nullif(bit_count(f | q.f), 0)::real, 0)::real AS similarity
                FROM (SELECT id, ('x' || encode(fingerprint, 'hex'))::varbit AS f FROM %s WHERE fingerprint IS NOT NULL) m
                WHERE id IS NOT NULL ORDER BY similarity DESC, id LIMIT %s) best
        $q$, queries, molecules, k);
END $$;
