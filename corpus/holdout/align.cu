// Local alignment (Smith-Waterman with affine gaps), one pair of sequences per thread. The query's 40
// columns of scores and of vertical gaps stay in registers across the loop over the subject's letters.
// The query's letters come packed; nvcc unpacks them ahead of the loop, which makes them 40 more.

constexpr int COLUMNS = 40;

extern "C" __global__ void align(int pairs,
                                 int letters,
                                 int match,
                                 int mismatch,
                                 int open,
                                 int extend,
                                 const unsigned* __restrict__ query,
                                 const unsigned char* __restrict__ subject,
                                 int* __restrict__ score,
                                 int* __restrict__ row) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) {
        return;
    }
    unsigned packed[COLUMNS / 4];
    int h[COLUMNS], vertical[COLUMNS];
#pragma unroll
    for (int k = 0; k < COLUMNS / 4; k++) {
        packed[k] = query[k * pairs + i];
    }
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        h[k] = 0;
        vertical[k] = -open;
    }
    int best = 0, where = 0;
#pragma unroll 1
    for (int j = 0; j < letters; j++) {
        unsigned letter = subject[j * pairs + i];
        int diagonal = 0, left = 0, horizontal = -open, row_best = 0;
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            unsigned mine = packed[k / 4] >> (k % 4 * 8) & 255;
            int up = h[k];
            vertical[k] = max(vertical[k] - extend, up - open);
            horizontal = max(horizontal - extend, left - open);
            int here = diagonal + (mine == letter ? match : mismatch);
            here = max(max(here, 0), max(vertical[k], horizontal));
            h[k] = here;
            row_best = max(row_best, here);
            diagonal = up;
            left = here;
        }
        if (row_best > best) {
            best = row_best;
            where = j;
        }
    }
    score[i] = best;
    row[i] = where;
}
