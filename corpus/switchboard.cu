// Control flow: a byte-code interpreter around a dense switch, a loop entered in the middle through a
// switch, and a filter built from dozens of predicates that are live together.

extern "C" __global__ void interpreter(const unsigned char* __restrict__ code,
                                       int length,
                                       const int* __restrict__ in,
                                       int* __restrict__ out) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int a = in[t], b = 1, c = t, d = 0, budget = 4096;
    for (int pc = 0; pc < length && budget-- > 0;) {
        int op = code[pc++];
        switch (op & 15) {
            case 0:
                a += b;
                break;
            case 1:
                b ^= c;
                break;
            case 2:
                c = a * 3 + d;
                break;
            case 3:
                d = __popc(a ^ b);
                break;
            case 4:
                if (a & 1) {
                    pc += op >> 4;
                }
                break;
            case 5:
                a = (a << 5) | ((unsigned)a >> 27);
                // Falls through: two operations share a tail.
            case 6:
                b -= c;
                break;
            case 7:
                c = max(c, d);
                break;
            case 8:
                d = in[t] + pc;
                break;
            case 9:
                if (b < 0) {
                    pc = max(0, pc - (op >> 4));
                }
                break;
            case 10: {
                int swap = a;
                a = b;
                b = swap;
                break;
            }
            case 11:
                a = d == 0 ? c : a / (d | 1);
                break;
            case 12:
                b = __clz(b);
                break;
            case 13:
                c ^= a;
                d ^= b;
                break;
            case 14:
                goto done;
            default:
                d++;
        }
    }
done:
    out[t] = a ^ b ^ c ^ d;
}

// A copy loop entered at one of eight places: the loop has several entries until it is split.
extern "C" __global__ void duff(const int* __restrict__ in, int* __restrict__ out, int count) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    const int* source = in + t * count;
    int sum = 0, rounds = (count + 7) / 8;
    switch (count % 8) {
        case 0:
            do {
                sum = sum * 31 + *source++;
                case 7:
                    sum ^= *source++;
                case 6:
                    sum = sum * 33 + *source++;
                case 5:
                    sum -= *source++;
                case 4:
                    sum = sum * 35 + *source++;
                case 3:
                    sum |= *source++;
                case 2:
                    sum = sum * 37 + *source++;
                case 1:
                    sum += *source++;
            } while (--rounds > 0);
    }
    out[t] = sum;
}

// 24 comparisons per element, all needed until the end, combined in ways selects cannot fold.
extern "C" __global__ void predicates(const float* __restrict__ x,
                                      const float* __restrict__ limits,
                                      int* __restrict__ out,
                                      int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) {
        return;
    }
    float v = x[t];
    bool above[24];
#pragma unroll
    for (int i = 0; i < 24; i++) {
        above[i] = v * (i + 1) > limits[i];
    }
    int score = 0;
    for (int round = 0; round < 3; round++) {
#pragma unroll
        for (int i = 0; i < 24; i++) {
            if ((above[i] && !above[(i + 7) % 24]) || (above[(i + 13) % 24] && round == i % 3)) {
                score += i * 17 + round;
            } else if (above[(i + 5) % 24] != above[(i + 11) % 24]) {
                score ^= i << round;
            }
        }
    }
    out[t] = score;
}
